"""OCI images without a container runtime: layers from Debian packages and from files, and one tar file with the result.

Reproducible: entries are sorted and have neither times nor owners, so the same packages and files give the same bytes. Nothing is unpacked and no maintainer script runs, so it needs no root.
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "antrea-rs/debian-packages"
# Debian 12 has /usr merged, its packages do not.
MERGED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
EPOCH = "1970-01-01T00:00:00Z"
DOCUMENTATION = r"usr/share/(doc|man|info|lintian|bug|locale|bash-completion)/"


class Layer:
    """Entries of a file system, by path without a leading slash."""

    def __init__(self):
        self.entries = {}

    def add(self, info, data=None):
        info.mtime = info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.pax_headers = {}
        self.entries[info.name] = (info, data)
        # A directory for every file: runtimes disagree on the mode of those they have to invent.
        parent = info.name.rpartition("/")[0]
        if parent and parent not in self.entries:
            self.directory(parent)

    def directory(self, path, mode=0o755):
        info = tarfile.TarInfo(path)
        info.type, info.mode = tarfile.DIRTYPE, mode
        self.add(info)

    def file(self, path, data, mode=0o644):
        info = tarfile.TarInfo(path)
        info.mode, info.size = mode, len(data)
        self.add(info, data)

    def link(self, path, target):
        info = tarfile.TarInfo(path)
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        self.add(info)

    def package(self, deb, left_out):
        """Adds the files of a Debian package but those that `left_out` matches, and an entry for scanners of packages."""
        archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            for info in files:
                name = merged(info.name.removeprefix("./").strip("/"))
                if name in ("", ".") or name in MERGED or left_out.match(name + "/"):
                    continue
                info.name = name
                if info.islnk():
                    info.linkname = merged(info.linkname.removeprefix("./"))
                if not (info.isdir() and name in self.entries):
                    self.add(info, files.extractfile(info).read() if info.isreg() else None)
        control = subprocess.run(["dpkg-deb", "--field", deb], check=True, capture_output=True).stdout
        name = re.search(rb"^Package: (.*)$", control, re.MULTILINE).group(1).decode()
        self.file(f"var/lib/dpkg/status.d/{name}", control)

    def blobs(self):
        """The compressed layer, and the digest of the uncompressed one."""
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for _, (info, data) in sorted(self.entries.items()):
                archive.addfile(info, io.BytesIO(data) if data is not None else None)
        raw = tar.getvalue()
        return gzip.compress(raw, compresslevel=6, mtime=0), digest(raw)


def merged(path):
    return f"usr/{path}" if path.split("/")[0] in MERGED else path


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def debian_layer(packages, left_out, say):
    """A layer with Debian packages of this machine's release, without files that the pattern `left_out` matches."""
    layer, left_out = Layer(), re.compile(f"{DOCUMENTATION}|{left_out}")
    for directory in MERGED:
        if directory in ("lib32", "libx32"):
            continue
        layer.link(directory, f"usr/{directory}")
    for deb in download(packages, say):
        layer.package(deb, left_out)
    for directory, mode in [("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700), ("run", 0o755), ("proc", 0o555), ("sys", 0o555)]:
        layer.directory(directory, mode)
    layer.link("var/run", "/run")
    layer.file("etc/passwd", b"root:x:0:0:root:/root:/bin/bash\nnonroot:x:65532:65532:nonroot:/nonexistent:/usr/sbin/nologin\n")
    layer.file("etc/group", b"root:x:0:\nnonroot:x:65532:\n")
    return layer


def closure(packages):
    """The packages with all their dependencies, as if nothing were installed."""
    ask = ["apt-get", "install", "--yes", "--print-uris", "--quiet=2", "--no-install-recommends", "-o", "Dir::State::status=/dev/null"]
    answer = subprocess.run([*ask, *packages], capture_output=True, text=True, check=True).stdout
    return sorted(line.split()[1].split("_")[0] for line in answer.splitlines() if line.startswith("'"))


def download(packages, say):
    """Paths of the current versions of the packages, in the order given."""
    ask = ["apt-get", "download", "--print-uris", "--quiet", *packages]
    answer = subprocess.run(ask, capture_output=True, text=True)
    if answer.returncode != 0:
        say("updating the package lists")
        subprocess.run(["sudo"] * (os.geteuid() != 0) + ["apt-get", "update", "--quiet=2"], check=True)
        answer = subprocess.run(ask, capture_output=True, text=True, check=True)
    # 'http://...' NAME_VERSION_ARCH.deb SIZE HASH:...
    found = {line.split()[1].split("_")[0]: line.split()[1] for line in answer.stdout.splitlines() if line.startswith("'")}
    CACHE.mkdir(parents=True, exist_ok=True)
    missing = [package for package in packages if not (CACHE / found[package]).exists()]
    if missing:
        say(f"downloading {len(missing)} Debian packages")
        subprocess.run(["apt-get", "download", "--quiet=2", "-o", "APT::Sandbox::User=root", *missing], check=True, cwd=CACHE)
    return [CACHE / found[package] for package in packages]


def missing_libraries(layers):
    """Shared libraries that a program of the image needs, and that no directory of libraries has: (program, library)."""
    present, needed = set(), []
    for layer in layers:
        for name, (_, data) in layer.entries.items():
            present.add(name.rpartition("/")[2])
            if data is not None and data[:4] == b"\x7fELF":
                needed += [(name, library) for library in libraries(data)]
    return [(program, library) for program, library in needed if library not in present]


def libraries(program):
    with tempfile.NamedTemporaryFile() as file:
        file.write(program)
        file.flush()
        dump = subprocess.run(["readelf", "--dynamic", "--wide", file.name], capture_output=True, check=True, text=True)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dump.stdout)


def write_images(output, images):
    """Writes images as one archive: an OCI layout, which is a Docker archive too. Each image has names, layers, config and labels."""
    blobs, known, index, docker = {}, {}, [], []

    def keep(data, kind):
        name = digest(data)
        blobs[path(name)] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": name, "size": len(data)}

    def keep_layer(layer):
        if id(layer) not in known:
            data, diff = layer.blobs()
            known[id(layer)] = keep(data, "layer.v1.tar+gzip"), diff
        return known[id(layer)]

    architecture = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
    for names, layers, config, labels in images:
        layers, diffs = zip(*(keep_layer(layer) for layer in layers))
        image = {
            "architecture": architecture,
            "os": "linux",
            "created": EPOCH,
            "config": {**config, "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": diffs},
            "history": [{"created": EPOCH, "comment": f"layer {number}"} for number in range(1, len(diffs) + 1)],
        }
        image = keep(compact(image), "config.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": image, "layers": layers}
        manifest = keep(compact(manifest), "manifest.v1+json")
        for name in names:
            annotations = {"io.containerd.image.name": full(name), "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
            index.append({**manifest, "annotations": annotations})
        docker.append({"Config": path(image["digest"]), "RepoTags": names, "Layers": [path(layer["digest"]) for layer in layers]})
    files = {
        **blobs,
        "oci-layout": compact({"imageLayoutVersion": "1.0.0"}),
        "index.json": compact({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": index}),
        "manifest.json": compact(docker),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_suffix(".part")
    with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    part.rename(output)


def path(digest):
    return "blobs/" + digest.replace(":", "/")


def full(name):
    """The name as container runtimes write it."""
    registry, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in registry or ":" in registry else f"docker.io/{name}"


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
