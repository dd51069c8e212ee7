"""Start, memory and CPU of the standalone gateway for many routes, and what one changed route costs.

bench.py BIN-DIR ENVOY GENERATOR [ROUTES...]   prints a Markdown table. The generator is bench/gen.py of the shared folder.
CPU is that of the control plane alone (user + system); Envoy runs beside it on the same machine.
"""
import http.client
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

bins, envoy, generator = sys.argv[1:4]
sizes = [int(n) for n in sys.argv[4:]] or [100, 1000, 5000]
TICK = os.sysconf("SC_CLK_TCK")
PORT = 10080


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def rss(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) / 1024


def ask(route, version):
    """True when Envoy serves the route in that version."""
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
    try:
        # No backend listens: the response is Envoy's own 503 and carries the route's response header.
        c.request("GET", f"/r{route}/u0/m0", headers={"Host": f"host-{route}.example.com"})
        return version in (c.getresponse().getheader("x-bench-version") or "")
    except OSError:
        return False
    finally:
        c.close()


def until(what, limit):
    start = time.monotonic()
    while not what():
        if time.monotonic() - start > limit:
            raise SystemExit(f"not within {limit} s")
        time.sleep(0.005)
    return time.monotonic() - start


def metric(addresses, name):
    host, port = addresses["metrics"].rsplit(":", 1)
    c = http.client.HTTPConnection("127.0.0.1", int(port), timeout=5)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    return sum(float(m[1]) for m in re.finditer(rf"^{name}(?:_total)?(?:{{[^}}]*}})? ([0-9.e+]+)$", text, re.M))


def offline(routes, tmp):
    path = os.path.join(tmp, "all.yaml")
    subprocess.run([sys.executable, generator, "--routes", str(routes), "-o", path], check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    with open(os.devnull, "wb") as null:
        subprocess.run([f"{bins}/egctl", "translate", "--from", "gateway-api", "--to", "xds", "-f", path, "-o", "json"], check=True, stdout=null)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def standalone(routes, tmp):
    res = os.path.join(tmp, "resources")
    subprocess.run([sys.executable, generator, "--routes", str(routes), "-d", res, "--per-file", "100"], check=True)
    told = os.path.join(tmp, "addresses.json")
    start = time.monotonic()
    gateway = subprocess.Popen(
        [f"{bins}/envoy-gateway", "standalone", "--resources", res, "--envoy-path", envoy, "--home", os.path.join(tmp, "home"),
         "--xds-port", "0", "--admin-port", "0", "--metrics-port", "0", "--health-port", "0", "--addresses-file", told],
        stdout=subprocess.DEVNULL, stderr=open(os.path.join(tmp, "log"), "w"))
    try:
        last = routes - 1
        until(lambda: ask(last, "v0"), 300)
        up = time.monotonic() - start
        time.sleep(1)
        addresses = json.load(open(told))
        loaded, up_cpu = rss(gateway.pid), cpu(gateway.pid)
        changes, costs, sent = [], [], []
        file = os.path.join(res, f"routes-{last // 100:04d}.yaml")
        for n in range(1, 6):
            text = open(file).read()
            head, tail = text.rsplit(f"name: route-{last}\n", 1)
            tail = re.sub(r"value: v\d+\n    backendRefs", f"value: v{n}\n    backendRefs", tail)
            c0, b0 = cpu(gateway.pid), metric(addresses, "xds_response_bytes")
            with open(file + ".tmp", "w") as f:
                f.write(head + f"name: route-{last}\n" + tail)
            os.rename(file + ".tmp", file)
            changes.append(until(lambda: ask(last, f"v{n}"), 120))
            time.sleep(0.5)
            costs.append(cpu(gateway.pid) - c0)
            sent.append(metric(addresses, "xds_response_bytes") - b0)
        return {"up": up, "up_cpu": up_cpu, "rss": loaded, "rss_after": rss(gateway.pid), "change": sorted(changes)[2],
                "change_cpu": sorted(costs)[2], "sent": sorted(sent)[2]}
    finally:
        gateway.terminate()
        gateway.wait(60)


print("| routes | offline CPU s (wall) | start → last route served | CPU s of that | resident MiB loaded → after 5 changes | one route changed → served | CPU s per change | bytes sent per change |")
print("|---|---|---|---|---|---|---|---|")
for n in sizes:
    with tempfile.TemporaryDirectory() as tmp:
        off, wall = offline(n, tmp)
        s = standalone(n, tmp)
    print(f"| {n} | {off:.2f} ({wall:.2f}) | {s['up']:.2f} s | {s['up_cpu']:.2f} | {s['rss']:.0f} → {s['rss_after']:.0f} | {s['change'] * 1000:.0f} ms | {s['change_cpu']:.2f} | {s['sent']:.0f} |", flush=True)
