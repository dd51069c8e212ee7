"""Prints what a report and a log of the Gateway API conformance suite say; exit code 1 unless every core test passed and none failed.

    conformance.py report.yaml suite.log
"""
import os
import re
import sys

report, log = sys.argv[1:3]


def profiles(path):
    """[(profile, {"core"|"extended": {"Passed": n, ...}})] of a report, which the suite writes in block style."""
    found, part, current = [], None, {}
    for line in open(path):
        if m := re.match(r"^(- |  )(core|extended):\s*$", line):
            if m[1] == "- ":
                current = {}
            part = current.setdefault(m[2], {})
        elif (m := re.match(r"^      (Passed|Failed|Skipped): (\d+)", line)) and part is not None:
            part[m[1]] = int(m[2])
        elif m := re.match(r"^  name: (\S+)", line):
            found.append((m[1], current))
    return found


text = open(log, errors="replace").read()
failed = re.findall(r"^ {4}--- FAIL: \S+?/(\S+) ", text, re.M)
good = False
if os.path.exists(report):
    found = profiles(report)
    good = bool(found)
    for name, parts in found:
        words = []
        for part, counts in parts.items():
            passed, total = counts.get("Passed", 0), sum(counts.values())
            words.append(f"{part} {passed}/{total}")
            good = good and passed == total and (part != "core" or total > 0)
        print(f"conformance: {name} {', '.join(words)}")
else:
    print("conformance: no report; the end of the log:")
    print("\n".join(text.splitlines()[-15:]))
for name in failed:
    print(f"conformance: failed: {name}")
sys.exit(0 if good and not failed else 1)
