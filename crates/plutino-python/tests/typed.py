"""What users write, for type checkers."""

from __future__ import annotations

import asyncio
from typing import Any, Dict, List

import numpy as np

import plutino


def outputs(path: str, x: np.ndarray[Any, Any]) -> List[np.ndarray[Any, Any]]:
    session = plutino.Session(path, threads=2, memory="low")
    for value in (*session.get_inputs(), *session.get_outputs()):
        print(value.name, value.shape, value.type)
    results = session.run(None, {"in0": x}, timeout=1.0)
    return list(results)


def bounded(path: str, x: np.ndarray[Any, Any]) -> Dict[str, Any]:
    token = plutino.CancelToken()
    try:
        plutino.Session(path).run(None, [x], cancel=token)
    except plutino.DeadlineExceeded:
        token.cancel()
    except plutino.OperatorError as error:
        print(error)
    state = plutino.Session(path).state()
    plan: plutino.Plan = plutino.Session(path).plan([x])
    return {"state": state.nbytes, "plan": plan}


async def waiting(path: str, x: np.ndarray[Any, Any]) -> None:
    session = plutino.Session(path)
    await asyncio.gather(session.run_async(None, [x]), session.run_async(None, [x]))


def exported(module: Any, x: Any) -> float:
    found: plutino.Export = plutino.export(module, "model", (x,), dynamic={"x": {0: "batch"}})
    fast: plutino.CompiledModule = plutino.compile(module, (x,), threads=1)
    fast(x)
    return found.error or 0.0
