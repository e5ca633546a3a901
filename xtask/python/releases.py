"""Exports small networks with several releases of pnnx, each in a virtual environment of its own.

Started by `cargo xtask releases`. The environments see the packages of this interpreter, but for pnnx.
"""

import argparse
import dataclasses
import subprocess
import sys
import sysconfig
import traceback
import venv
from pathlib import Path

RELEASES = ("20260409", "20251119", "20250930", "20250430", "20241223", "20240819")
"""The last ones before the release of requirements.txt, and older ones in steps of some months."""

NETWORKS = ("head", "sizes", "functions", "attention", "recurrent")


def environment(folder: Path, release: str) -> Path:
    """The interpreter of an environment with this release of pnnx."""
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        own = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True)
        Path(own.strip(), "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        subprocess.check_call([python, "-m", "pip", "install", "--quiet", "--no-deps", f"pnnx=={release}"])
        (folder / "complete").touch()
    return python


def export(out: Path) -> None:
    """Writes the cases with the pnnx of this environment."""
    import operators
    from operators import case

    for name in NETWORKS:
        try:
            case.write(name, dataclasses.replace(operators.CASES[f"optlevel1_{name}"], optlevel=2, misread=True), out / name)
            print(f"  {name}: exported", flush=True)
        except Exception as error:  # a release that cannot convert it is no fault of the file's reader
            print(f"  {name}: not exported: {traceback.format_exception_only(error)[-1].strip()[:200]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the environments and the cases")
    parser.add_argument("--export", type=Path, help="write the cases to this folder, with the pnnx of this environment")
    parser.add_argument("releases", nargs="*", help="releases of pnnx [default: six]")
    args = parser.parse_args()
    if args.export:
        return export(args.export)
    for release in args.releases or RELEASES:
        print(f"pnnx {release}", flush=True)
        python = environment(args.out / "environments" / release, release)
        subprocess.check_call([python, __file__, "--out", args.out, "--export", args.out / "cases" / release])


if __name__ == "__main__":
    sys.exit(main())
