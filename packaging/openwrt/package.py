#!/usr/bin/env python3
"""Makes OpenWrt packages, each as an .ipk for opkg and an .apk for apk.

Usage: package.py PROGRAM ARCHITECTURE FOLDER [FULL_PROGRAM]
       package.py --setups FOLDER
PROGRAM is that of build-router.sh, for the package sqm. FULL_PROGRAM has the page and `tune`, for the package sqm-web. The LuCI
application luci-app-sqm has no program. ARCHITECTURE is OpenWrt's name (opkg print-architecture), such as mipsel_24kc.
Prints the names of the files. --setups writes only the files by which LuCI lists the setup scripts. The same program gives the same bytes: times are those of SOURCE_DATE_EPOCH, or 1970.
"""

import gzip
import hashlib
import io
import os
import re
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

# No folder of compiled files in the source tree.
sys.dont_write_bytecode = True

import lmo

HERE = Path(__file__).resolve().parent
APP = HERE / "luci-app-sqm"
RELEASE = 1
HOMEPAGE = "https://openwrt.org/docs/guide-user/network/traffic-shaping/sqm"


class Package(NamedTuple):
    """What feed/sqm/Makefile and luci-app-sqm/Makefile say as well."""

    name: str
    description: str
    depends: list
    # Path on the router -> (content, mode).
    files: dict
    # Name of opkg's script -> name of the file here.
    scripts: dict
    conffiles: list = []
    # The package that this one takes the place of.
    instead_of: str = ""
    is_program: bool = True


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


def own(name, mode=0o755):
    return (HERE / name).read_bytes(), mode


def setups():
    """The files by which LuCI lists the setup scripts."""
    for name, about in SETUPS.items():
        text = f"# {name}: {about}\n# sqm has this setup compiled in and does not run this file, which only gives LuCI its name.\n"
        yield f"{name}.qos", text.encode()
        yield f"{name}.qos.help", (about + "\n").encode()


def sqm(program):
    """The program for routers, its services, and what programs beside sqm-scripts look for."""
    found = {
        "usr/bin/sqm": (program, 0o755),
        "etc/init.d/sqm": own("sqm.init"),
        "etc/hotplug.d/iface/11-sqm": own("sqm.hotplug"),
        "etc/config/sqm": own("sqm.config", 0o644),
        "etc/uci-defaults/sqm": own("sqm.uci-defaults"),
        # A new firmware keeps setup scripts of the user's own, and what autorate has learned.
        "lib/upgrade/keep.d/sqm": (b"/etc/sqm/\n", 0o644),
    }
    for name in ("run.sh", "start-sqm", "stop-sqm", "state-files", "update-available-qdiscs"):
        found[f"usr/lib/sqm/{name}"] = own(f"lib/{name}")
    found.update({f"usr/lib/sqm/{name}": (content, 0o644) for name, content in setups()})
    return Package(
        name="sqm",
        description="Smart Queue Management: plans, applies, verifies and measures queues against bufferbloat",
        depends=["kmod-sched-core", "kmod-sched-cake", "kmod-ifb", "kmod-nft-core"],
        files=found,
        scripts={"postinst": "postinst", "prerm": "prerm"},
        conffiles=["/etc/config/sqm"],
        instead_of="sqm-scripts",
    )


def sqm_web(program):
    """The full program under a name of its own: the page, tune, comparisons. The daemon stays that of the package sqm."""
    return Package(
        name="sqm-web",
        description="The page of Smart Queue Management, and its full program as sqm-web: tune, compare, replay",
        depends=["sqm"],
        files={
            "usr/sbin/sqm-web": (program, 0o755),
            "etc/init.d/sqm-web": own("sqm-web.init"),
            # A new firmware keeps password, certificate and log.
            "lib/upgrade/keep.d/sqm-web": (b"/etc/sqm-web/\n", 0o644),
        },
        scripts={"postinst": "sqm-web.postinst", "prerm": "sqm-web.prerm"},
    )


def luci_app():
    """The LuCI application, with its translations as LuCI reads them."""
    found = {}
    for folder, place in [("htdocs", "www"), ("root", "")]:
        for path in sorted((APP / folder).rglob("*")):
            if path.is_file():
                target = str(Path(place) / path.relative_to(APP / folder))
                found[target] = (path.read_bytes(), 0o755 if "libexec" in target else 0o644)
    for path in sorted((APP / "po").glob("*/sqm.po")):
        found[f"usr/lib/lua/luci/i18n/sqm.{path.parent.name}.lmo"] = (lmo.of(path.read_text(encoding="utf-8")), 0o644)
    return Package(
        name="luci-app-sqm",
        description="LuCI application for Smart Queue Management",
        depends=["luci-base", "sqm"],
        files=found,
        scripts={"postinst": "luci-app-sqm.postinst"},
        is_program=False,
    )


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


def script(name):
    return (HERE / name).read_bytes(), 0o755


def ipk(version, architecture, package, size):
    replaced = package.instead_of
    control = "\n".join([
        f"Package: {package.name}",
        f"Version: {version}-{RELEASE}",
        f"Depends: {', '.join(package.depends)}",
        *([f"Conflicts: {replaced}", f"Provides: {replaced}", f"Replaces: {replaced}"] if replaced else []),
        "License: MIT OR Apache-2.0",
        "Section: net",
        f"Architecture: {architecture if package.is_program else 'all'}",
        f"Installed-Size: {size}",
        f"Description: {package.description}",
        "",
    ])
    controls = {
        "control": (control.encode(), 0o644),
        **{name: script(file) for name, file in package.scripts.items()},
    }
    if package.conffiles:
        controls["conffiles"] = (("\n".join(package.conffiles) + "\n").encode(), 0o644)
    parts = {
        "./debian-binary": b"2.0\n",
        "./data.tar.gz": packed(tar(package.files, "./")),
        "./control.tar.gz": packed(tar(controls, "./")),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return packed(out.getvalue())


# apk's names for the scripts of opkg.
APK_SCRIPTS = {"postinst": [".post-install", ".post-upgrade"], "prerm": [".pre-deinstall"]}


def apk(version, architecture, package, size):
    replaced = package.instead_of
    data = packed(tar(package.files, checksums=True))
    info = "\n".join([
        f"pkgname = {package.name}",
        f"pkgver = {version}-r{RELEASE}",
        f"pkgdesc = {package.description}",
        f"url = {HOMEPAGE}",
        f"arch = {architecture if package.is_program else 'noarch'}",
        f"size = {size}",
        "license = MIT OR Apache-2.0",
        "origin = sqm",
        *(f"depend = {name}" for name in package.depends),
        *([f"depend = !{replaced}", f"provides = {replaced}={version}", f"replaces = {replaced}"] if replaced else []),
        f"datahash = {hashlib.sha256(data).hexdigest()}",
        "",
    ])
    controls = {
        ".PKGINFO": (info.encode(), 0o644),
        **{name: script(file) for kind, file in package.scripts.items() for name in APK_SCRIPTS[kind]},
    }
    return packed(tar(controls, ends=False)) + data


def program(path):
    content = Path(path).read_bytes()
    if content[:4] != b"\x7fELF":
        sys.exit(f"package.py: {path} is not a program for Linux")
    return content


def main():
    if sys.argv[1:2] == ["--setups"] and len(sys.argv) == 3:
        for name, content in setups():
            (Path(sys.argv[2]) / name).write_bytes(content)
        return
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    architecture, out = sys.argv[2], Path(sys.argv[3])
    if not re.fullmatch(r"[a-z0-9_+-]+", architecture):
        sys.exit(f"package.py: '{architecture}' is no architecture of OpenWrt, such as mipsel_24kc")
    packages = [sqm(program(sys.argv[1])), luci_app(), *(sqm_web(program(path)) for path in sys.argv[4:])]
    workspace = (HERE / "../../Cargo.toml").read_text()
    version = re.search(r'^version = "(.*)"', workspace, re.M).group(1)
    out.mkdir(parents=True, exist_ok=True)
    for package in packages:
        size = sum(len(content) for content, _ in package.files.values())
        place, apk_place = (architecture, architecture) if package.is_program else ("all", "noarch")
        for name, make in [
            (f"{package.name}_{version}-{RELEASE}_{place}.ipk", ipk),
            (f"{package.name}-{version}-r{RELEASE}.{apk_place}.apk", apk),
        ]:
            (out / name).write_bytes(make(version, architecture, package, size))
            print(out / name)


if __name__ == "__main__":
    main()
