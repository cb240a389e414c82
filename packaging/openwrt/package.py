#!/usr/bin/env python3
"""Packs a program built by build-router.sh as OpenWrt packages: an .ipk for opkg and an .apk for apk.

Usage: package.py PROGRAM ARCHITECTURE FOLDER
ARCHITECTURE is OpenWrt's name (opkg print-architecture), such as mipsel_24kc. Prints the names of the two files.
The same program gives the same bytes: times are those of SOURCE_DATE_EPOCH, or 1970.
"""

import gzip
import hashlib
import io
import os
import re
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RELEASE = 1
DEPENDS = ["kmod-sched-core", "kmod-sched-cake", "kmod-ifb"]
DESCRIPTION = "Smart Queue Management: plans, applies, verifies and measures queues against bufferbloat"
HOMEPAGE = "https://openwrt.org/docs/guide-user/network/traffic-shaping/sqm"
CONFFILES = ["/etc/config/sqm"]
# Names and help of the setup scripts, which LuCI lists by the names of files. They are compiled into the program.
SETUPS = {
    "best_of_cake": "CAKE as sqm recommends it, each direction in its own way. The best choice for most lines.",
    "piece_of_cake": "CAKE with one tin in each direction: all traffic alike.",
    "layer_cake": "CAKE with tins by DSCP (diffserv3).",
    "simple": "HTB with three classes, and fq_codel or another leaf in each.",
    "simplest": "HTB with one class and one leaf. For slow processors.",
    "simplest_tbf": "TBF with one leaf. For slow processors.",
    "hfsc_lite": "HFSC with three classes.",
    "hfsc_litest": "HFSC with one class and one leaf.",
}


def files(program):
    """Path on the router -> (content, mode)."""
    def own(name, mode=0o755):
        return (HERE / name).read_bytes(), mode

    found = {
        "usr/bin/sqm": (program, 0o755),
        "etc/init.d/sqm": own("sqm.init"),
        "etc/hotplug.d/iface/11-sqm": own("sqm.hotplug"),
        "etc/config/sqm": own("sqm.config", 0o644),
        "etc/uci-defaults/sqm": own("sqm.uci-defaults"),
    }
    for name in ("run.sh", "start-sqm", "stop-sqm", "state-files", "update-available-qdiscs"):
        found[f"usr/lib/sqm/{name}"] = own(f"lib/{name}")
    for name, about in SETUPS.items():
        text = f"# {name}: {about}\n# sqm has this setup compiled in and does not run this file, which only gives LuCI its name.\n"
        found[f"usr/lib/sqm/{name}.qos"] = (text.encode(), 0o644)
        found[f"usr/lib/sqm/{name}.qos.help"] = ((about + "\n").encode(), 0o644)
    return found


def members(contents):
    """The folders of these files and the files themselves, in the order of their names."""
    folders = {str(parent) for path in contents for parent in Path(path).parents if str(parent) != "."}
    for path in sorted(folders | set(contents)):
        member = tarfile.TarInfo(path)
        member.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
        member.uname = member.gname = "root"
        if path in folders:
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            yield member, None
        else:
            content, member.mode = contents[path]
            member.size = len(content)
            yield member, content


def tar(contents, prefix="", checksums=False, ends=True):
    """An uncompressed archive. apk reads a checksum of each file from a header of its own."""
    out = io.BytesIO()
    archive = tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT if checksums else tarfile.GNU_FORMAT)
    for member, content in members(contents):
        member.name = prefix + member.name
        if checksums and content is not None:
            member.pax_headers = {"APK-TOOLS.checksum.SHA1": hashlib.sha1(content).hexdigest()}
        archive.addfile(member, io.BytesIO(content) if content is not None else None)
    length = archive.offset
    archive.close()
    # apk reads the archives one after the other, so that all but the last have no end.
    return out.getvalue() if ends else out.getvalue()[:length]


def packed(data):
    return gzip.compress(data, 9, mtime=0)


def ipk(version, architecture, contents, size):
    control = "\n".join([
        "Package: sqm",
        f"Version: {version}-{RELEASE}",
        f"Depends: {', '.join(DEPENDS)}",
        "Conflicts: sqm-scripts",
        "Provides: sqm-scripts",
        "Replaces: sqm-scripts",
        "License: MIT OR Apache-2.0",
        "Section: net",
        f"Architecture: {architecture}",
        f"Installed-Size: {size}",
        f"Description: {DESCRIPTION}",
        "",
    ])
    scripts = {name: ((HERE / name).read_bytes(), 0o755) for name in ("postinst", "prerm")}
    controls = {
        "control": (control.encode(), 0o644),
        "conffiles": (("\n".join(CONFFILES) + "\n").encode(), 0o644),
        **scripts,
    }
    parts = {
        "./debian-binary": b"2.0\n",
        "./data.tar.gz": packed(tar(contents, "./")),
        "./control.tar.gz": packed(tar(controls, "./")),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return packed(out.getvalue())


def apk(version, architecture, contents, size):
    data = packed(tar(contents, checksums=True))
    info = "\n".join([
        "pkgname = sqm",
        f"pkgver = {version}-r{RELEASE}",
        f"pkgdesc = {DESCRIPTION}",
        f"url = {HOMEPAGE}",
        f"arch = {architecture}",
        f"size = {size}",
        "license = MIT OR Apache-2.0",
        "origin = sqm",
        *(f"depend = {name}" for name in DEPENDS),
        "depend = !sqm-scripts",
        f"provides = sqm-scripts={version}",
        "replaces = sqm-scripts",
        f"datahash = {hashlib.sha256(data).hexdigest()}",
        "",
    ])
    controls = {
        ".PKGINFO": (info.encode(), 0o644),
        ".post-install": ((HERE / "postinst").read_bytes(), 0o755),
        ".post-upgrade": ((HERE / "postinst").read_bytes(), 0o755),
        ".pre-deinstall": ((HERE / "prerm").read_bytes(), 0o755),
    }
    return packed(tar(controls, ends=False)) + data


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    program, architecture, out = Path(sys.argv[1]).read_bytes(), sys.argv[2], Path(sys.argv[3])
    if not re.fullmatch(r"[a-z0-9_+-]+", architecture):
        sys.exit(f"package.py: '{architecture}' is no architecture of OpenWrt, such as mipsel_24kc")
    if program[:4] != b"\x7fELF":
        sys.exit(f"package.py: {sys.argv[1]} is not a program for Linux")
    workspace = (HERE / "../../Cargo.toml").read_text()
    version = re.search(r'^version = "(.*)"', workspace, re.M).group(1)
    contents = files(program)
    size = sum(len(content) for content, _ in contents.values())
    out.mkdir(parents=True, exist_ok=True)
    for name, make in [
        (f"sqm_{version}-{RELEASE}_{architecture}.ipk", ipk),
        (f"sqm-{version}-r{RELEASE}.{architecture}.apk", apk),
    ]:
        (out / name).write_bytes(make(version, architecture, contents, size))
        print(out / name)


main()
