"""joblib: batches over a pool of processes.

    pip install joblib
    python joblib_pool.py
"""

import numpy as np
from joblib import Parallel, delayed

import shared


def main():
    session, images = shared.session(), shared.images()
    expected = np.concatenate([session(batch) for batch in np.array_split(images, 12)])
    # The session is pickled once for each batch: large models are better named by a path, or made in
    # each worker, as the other examples do.
    calls = (delayed(session)(batch) for batch in np.array_split(images, 12))
    print("joblib:", shared.same(np.concatenate(Parallel(n_jobs=2)(calls)), expected))


if __name__ == "__main__":
    main()
