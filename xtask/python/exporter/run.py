"""Exports many models, each in a process of its own with a time limit, and writes the table of docs/exporting.md.

    PYTHONPATH=<folder of plutino> python -m exporter.run [--only WORD] [--timeout 300] [--document ../../docs/exporting.md]

Results are kept in a file of JSON lines (`--results`); models that are in it are not run again unless `--again` says so.
"""

import argparse
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

from .cases import CASES, library
from .child import prepare, run

BEGIN, END = "<!-- models: begin -->", "<!-- models: end -->"


def read(path: Path) -> dict[str, dict]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {found["name"]: found for found in map(json.loads, lines)}


def spread(names: list[str]) -> list[str]:
    """The same models, those of the libraries in turn, and those of a library in strides over its list."""
    seen, places = Counter(), {}
    for name in names:
        places[name] = seen[library(name)]
        seen[library(name)] += 1
    return sorted(names, key=lambda name: (places[name] * 7 % seen[library(name)], library(name), name))


def cause(found: dict) -> str:
    """Why a model is not right, in a line."""
    text = re.sub(r"\S*/(model\.pnnx)", r"\1", found.get("why", "")).replace("|", "\\|").replace("\n", " ")
    return text if len(text) < 240 else text[:240] + " ..."


def table(results: dict[str, dict]) -> str:
    """Counts by library, then each model that is not right, then what deviates."""
    by_library = defaultdict(Counter)
    for name, found in results.items():
        by_library[library(name)][found["verdict"]] += 1
        by_library[library(name)]["pnnx"] += found.get("exporter") == "pnnx" and found["verdict"] == "right"
    lines = ["| library | models | right | of these through pnnx | not right |", "|---|---|---|---|---|"]
    total = Counter()
    for name, counts in sorted(by_library.items(), key=lambda item: -sum(item[1].values())):
        models = sum(count for verdict, count in counts.items() if verdict not in ("pnnx", "not made"))
        total.update(models=models, right=counts["right"], pnnx=counts["pnnx"])
        lines.append(f"| {name} | {models} | {counts['right']} | {counts['pnnx']} | {models - counts['right']} |")
    share = 100 * total["right"] / max(total["models"], 1)
    lines.append(f"| all | {total['models']} | {total['right']} ({share:.1f} %) | {total['pnnx']} | {total['models'] - total['right']} |")
    wrong = {name: found for name, found in results.items() if found["verdict"] not in ("right", "not made")}
    lines += ["", "| model | what came of it | cause |", "|---|---|---|"]
    lines += [f"| {name} | {found['verdict']} | {cause(found)} |" for name, found in sorted(wrong.items())]
    right = sorted(name for name, found in results.items() if found["verdict"] == "right")
    names = defaultdict(list)
    for name in right:
        names[library(name)].append(name.removeprefix(f"{library(name)} "))
    lines += ["", "Right:", ""]
    lines += [f"- {key}: {', '.join(sorted(value))}" for key, value in sorted(names.items())]
    return "\n".join(lines)


def said(results: dict[str, dict]) -> str:
    """Counts by library, then each model with what `check` and `verify` say of it, and the cause of what is wrong."""
    seen = {name: found for name, found in results.items() if found["verdict"] != "not made"}
    verdicts = ("right", "wrong", "refused", "not exported", "failed", "crashed", "time")
    verdicts = [each for each in verdicts if any(found["verdict"] == each for found in seen.values())]
    lines = [f"| library | models | {' | '.join(verdicts)} |", "|---|---" + "|---" * len(verdicts) + "|"]
    groups = [(name, [f for n, f in seen.items() if library(n) == name]) for name in dict.fromkeys(map(library, seen))]
    for name, group in [*sorted(groups, key=lambda item: -len(item[1])), ("all", list(seen.values()))]:
        counts = [str(sum(found["verdict"] == each for found in group)) for each in verdicts]
        lines.append(f"| {name} | {len(group)} | {' | '.join(counts)} |")
    lines += ["", "| model | `check` | `verify` | cause |", "|---|---|---|---|"]
    bad = {name: found for name, found in seen.items() if found["verdict"] != "right"}
    for name, found in sorted(bad.items()):
        checked = remarks(found) if "check" in found else ""
        verified = found.get("verify", found["verdict"]).removeprefix("error: ").partition("; largest")[0]
        lines.append(f"| {name} | {cell(checked)} | {cell(verified)} | {blame(found)} |")
    lines += ["", "| right | `check` | `verify`: error of the deviation |", "|---|---|---|"]
    for name, found in sorted(seen.items()):
        if found["verdict"] == "right":
            error = "0" if not found["error"] else f"{found['error']:.1e}"
            own = f" (PyTorch's own, against f64: {found['own']:.1e} of the largest)" if "own" in found else ""
            lines.append(f"| {name} | {cell(remarks(found))} | {error}{own} |")
    return "\n".join(lines)


def cell(text: str) -> str:
    text = text.replace("|", "\\|").replace("\n", " ")
    return text if len(text) < 130 else text[:130] + " ..."


def remarks(found: dict) -> str:
    """What `check` says, without numbers of operators."""
    summary = found["check"].partition("all supported; ")[2] or found["check"].partition(": ")[2]
    notes = [each.partition(":")[0] for each in found["notes"]]
    return "; ".join([summary, *(f"note: {each}" for each in notes)])


CAUSES = (
    ("keeps only the first", "pnnx: the index of a mask keeps its first elements; `check` refuses it by name"),
    ("dynamo-optimized", "TorchScript has no control flow of this sort"),
    ("BFloat16", "pnnx folds batch norms in f32: no half precision"),
)


def blame(found: dict) -> str:
    """Whose fault it is, as far as that can be told."""
    why = found.get("why", "")
    known = next((cause for word, cause in CAUSES if word in why), None)
    if known is not None or found["verdict"] == "not exported":
        return known or cell(why)
    script = found.get("script")
    warned = [each for each in found.get("warnings", ()) if "leftovers" in each]
    if warned:
        return "pnnx: leftovers of its own run in a constant that the model writes to, of which `check` warns"
    if script is None:
        return "pnnx: its own script does not run"
    return f"pnnx: its own script, run by PyTorch, is off by {script:.0e} of the largest" if script > 1e-4 else "ours"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="models whose name has this word; several in this order")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--exporter", choices=("default", "torch.export", "pnnx"), default="default")
    parser.add_argument("--command", help="export by pnnx alone, and ask this program (`plutino`) what it says of the files")
    parser.add_argument("--results", type=Path, default=Path("exporter.jsonl"))
    parser.add_argument("--again", action="store_true", help="run what has a result that is not right, too")
    parser.add_argument("--document", type=Path, help="a page that has the marks of the table")
    args = parser.parse_args()
    results = read(args.results)
    words = args.only or [""]
    chosen = list(dict.fromkeys(name for word in words for name in CASES if word in name))
    # Some of each library early: a run that is ended has seen them all.
    chosen = spread(chosen)
    todo = [n for n in chosen if n not in results or (args.again and results[n]["verdict"] != "right")]
    if todo:
        prepare()
    for name in todo:
        found = run(name, args.exporter, args.command, args.timeout)
        results[name] = {"name": name, **found}
        why = found.get("why", found.get("fallback")) or ""
        print(f"{name}: {found['verdict']} {found.get('error', '')} {why[:160]}".strip(), flush=True)
        args.results.write_text("".join(json.dumps(found) + "\n" for found in results.values()))
    write = table if args.command is None else said
    text = write({name: results[name] for name in CASES if name in results})
    if args.document:
        page = args.document.read_text()
        head, rest = page.split(BEGIN)
        args.document.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}")
    else:
        print(text)


if __name__ == "__main__":
    main()
