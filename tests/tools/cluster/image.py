"""Writes a container image of a few files as an OCI archive, which `ctr images import` takes. The same files give the same bytes.

    image.py OUT.tar --name NAME:TAG [--name ...] --entrypoint PATH [--user UID] [--binary SRC=DEST ...] [--file SRC=DEST ...]

--binary brings the shared libraries and the loader along that ldd names for it, at the paths where they were found.
"""
import argparse
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile

MEDIA = "application/vnd.oci.image."
USERS = "root:x:0:0::/:/\nnonroot:x:65532:65532::/:/\n"
GROUPS = "root:x:0:\nnonroot:x:65532:\n"


def pair(text):
    source, _, dest = text.partition("=")
    return source, dest.lstrip("/")


def libraries(binary):
    """Paths of what a dynamically linked program loads; none for a static one."""
    out = subprocess.run(["ldd", binary], capture_output=True, text=True)
    if out.returncode != 0:
        return []
    words = (line.split() for line in out.stdout.splitlines())
    found = (next((w for w in line if w.startswith("/")), None) for line in words)
    missing = [line for line in out.stdout.splitlines() if "not found" in line]
    if missing:
        raise SystemExit(f"{binary}: {missing[0].strip()}")
    return sorted({path for path in found if path})


def write_layer(out, files):
    """The layer: a few folders and users, then each (source, dest)."""

    def entry(name, mode, size=0, kind=tarfile.REGTYPE):
        info = tarfile.TarInfo(name)
        info.mode, info.size, info.type = mode, size, kind
        return info

    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        made = set()

        def folders(name):
            parts = name.split("/")[:-1]
            for i in range(1, len(parts) + 1):
                folder = "/".join(parts[:i])
                if folder not in made:
                    made.add(folder)
                    tar.addfile(entry(folder, 0o755, kind=tarfile.DIRTYPE))

        for name, mode in (("tmp", 0o1777), ("etc", 0o755)):
            made.add(name)
            tar.addfile(entry(name, mode, kind=tarfile.DIRTYPE))
        for name, text in (("etc/passwd", USERS), ("etc/group", GROUPS)):
            tar.addfile(entry(name, 0o644, len(text)), io.BytesIO(text.encode()))
        for source, dest in files:
            folders(dest)
            with open(source, "rb") as f:
                tar.addfile(entry(dest, 0o755 if os.access(source, os.X_OK) else 0o644, os.path.getsize(source)), f)


def digest(file):
    file.seek(0)
    sha = hashlib.file_digest(file, "sha256").hexdigest()
    size = file.tell()
    file.seek(0)
    return sha, size


def main():
    args = argparse.ArgumentParser()
    args.add_argument("out")
    args.add_argument("--name", action="append", required=True)
    args.add_argument("--entrypoint", required=True)
    args.add_argument("--user", default="")
    args.add_argument("--binary", action="append", type=pair, default=[])
    args.add_argument("--file", action="append", type=pair, default=[])
    args = args.parse_args()

    files = dict((dest, source) for source, dest in args.file + args.binary)
    for source, _ in args.binary:
        for path in libraries(source):
            files[path.lstrip("/")] = path

    with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(args.out))) as layer:
        write_layer(layer, sorted((source, dest) for dest, source in files.items()))
        sha, size = digest(layer)
        blobs = []

        def blob(document, kind):
            data = json.dumps(document, sort_keys=True).encode()
            described = {"mediaType": MEDIA + kind, "digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}
            blobs.append((described["digest"], io.BytesIO(data), len(data)))
            return described

        config = blob({
            "architecture": "amd64", "os": "linux",
            "config": {"Entrypoint": [args.entrypoint], "User": args.user, "WorkingDir": "/", "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha]},
        }, "config.v1+json")
        manifest = blob({
            "schemaVersion": 2, "mediaType": MEDIA + "manifest.v1+json", "config": config,
            "layers": [{"mediaType": MEDIA + "layer.v1.tar", "digest": "sha256:" + sha, "size": size}],
        }, "manifest.v1+json")
        named = [dict(manifest, annotations={"io.containerd.image.name": name}) for name in args.name]
        index = json.dumps({"schemaVersion": 2, "mediaType": MEDIA + "index.v1+json", "manifests": named}).encode()
        layout = b'{"imageLayoutVersion": "1.0.0"}'

        with tarfile.open(args.out + ".tmp", "w", format=tarfile.GNU_FORMAT) as tar:
            def add(name, file, length):
                info = tarfile.TarInfo(name)
                info.size = length
                tar.addfile(info, file)

            add("oci-layout", io.BytesIO(layout), len(layout))
            add("index.json", io.BytesIO(index), len(index))
            add("blobs/sha256/" + sha, layer, size)
            for name, file, length in blobs:
                add("blobs/" + name.replace(":", "/"), file, length)
    os.rename(args.out + ".tmp", args.out)


main()
