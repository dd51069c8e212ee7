"""Prints 'PASSED FAILED' of a log of cargo test or nextest, then the slowest tests from nextest's JUnit file."""
import os
import re
import sys
import xml.etree.ElementTree as ET

log, junit = sys.argv[1:3]
text = open(log, errors="replace").read()
passed = failed = 0
for m in re.finditer(r"^test result: \w+\. (\d+) passed; (\d+) failed", text, re.M):
    passed += int(m[1])
    failed += int(m[2])
for m in re.finditer(r"^\s*Summary \[.*?\] \d+ tests? run: (\d+) passed(?:.*?, (\d+) failed)?", text, re.M):
    passed += int(m[1])
    failed += int(m[2] or 0)
for m in re.finditer(r"^simulation: (\d+) histories, (\d+) violations", text, re.M):
    passed += m[2] == "0"
    failed += m[2] != "0"
for m in re.finditer(r"^hitless: \d+ changes, \d+ requests, (\d+) failed", text, re.M):
    passed += m[1] == "0"
    failed += m[1] != "0"
for m in re.finditer(r"^soak: .* (\d+) violations", text, re.M):
    passed += m[1] == "0"
    failed += m[1] != "0"
for m in re.finditer(r"^cluster: (\d+) steps passed, (\d+) failed", text, re.M):
    passed += int(m[1])
    failed += int(m[2])
for m in re.finditer(r"^ha: \d+ rows, (\d+) passed, (\d+) failed", text, re.M):
    passed += int(m[1])
    failed += int(m[2])
for m in re.finditer(r"^conformance: \S+ core (\d+)/(\d+)", text, re.M):
    passed += int(m[1])
    failed += int(m[2]) - int(m[1])
print(passed, failed)
if os.path.exists(junit):
    cases = [(float(c.get("time", 0)), f'{c.get("classname")} {c.get("name")}') for c in ET.parse(junit).iter("testcase")]
    for t, name in sorted(cases, reverse=True)[:5]:
        if t >= 1:
            print(f"   slow: {t:7.1f}s {name}")
