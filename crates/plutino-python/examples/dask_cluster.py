"""Dask: an array whose blocks are computed by two workers.

    pip install "dask[array]" distributed
    python dask_cluster.py
"""

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import shared


def scores(block, session):
    return session(block)


def main():
    session, images = shared.session(), shared.images()
    expected = np.concatenate([session(images[i : i + 30]) for i in range(0, len(images), 30)])
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        # Once to each worker, whatever the number of blocks.
        [everywhere] = client.scatter([session], broadcast=True)
        blocks = da.from_array(images, chunks=(30, 1, 8, 8))
        parts = [client.submit(scores, block, everywhere) for block in client.compute(list(blocks.to_delayed().ravel()))]
        print("dask:", shared.same(np.concatenate(client.gather(parts)), expected))


if __name__ == "__main__":
    main()
