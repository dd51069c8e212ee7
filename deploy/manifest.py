"""Of a rendered chart on standard input: drops hooks and notes on helm, and puts Jobs last. Works on lines, as the text is ours."""
import re
import sys

documents = []
for text in re.split(r"(?m)^---\n", sys.stdin.read()):
    lines = [l for l in text.rstrip().split("\n") if not re.match(r"\s*(# Source:|helm\.sh/|app\.kubernetes\.io/managed-by:)", l)]
    kept = []
    for i, line in enumerate(lines):
        following = lines[i + 1] if i + 1 < len(lines) else ""
        depth = len(line) - len(line.lstrip())
        empty = len(following) - len(following.lstrip()) <= depth
        if line.strip() == "annotations:" and empty:
            continue
        kept.append(line)
    text = "\n".join(kept)
    kind = re.search(r"(?m)^kind: (\w+)", text)
    if kind:
        documents.append((kind[1], text))
order = {"Namespace": 0, "Job": 2}
for _, text in sorted(documents, key=lambda d: order.get(d[0], 1)):
    print("---\n" + text.strip("\n"))
