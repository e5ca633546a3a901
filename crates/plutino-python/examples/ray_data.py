"""Ray Data: batches through two actors, each of which makes its session once.

    pip install "ray[data]"
    python ray_data.py
"""

import os

import numpy as np
import ray

import shared


class Classifier:
    """What an actor is: made once, called for every batch."""

    def __init__(self, session):
        self.session = ray.get(session)

    def __call__(self, batch):
        return {"row": batch["row"], "scores": self.session(batch["image"])}


def main():
    session, images = shared.session(), shared.images()
    expected = np.concatenate([session(images[i : i + 1]) for i in range(len(images))])
    path = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")])
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
    rows = [{"row": i, "image": image} for i, image in enumerate(images)]
    # A reference: the weights lie once in the store of each machine.
    everywhere = ray.put(session)
    found = ray.data.from_items(rows).map_batches(
        Classifier, fn_constructor_args=(everywhere,), batch_size=30, concurrency=2
    )
    rows = sorted(found.take_all(), key=lambda row: row["row"])
    print("ray:", shared.same(np.stack([row["scores"] for row in rows]), expected))
    ray.shutdown()


if __name__ == "__main__":
    main()
