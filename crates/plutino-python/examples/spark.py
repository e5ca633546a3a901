"""Spark: mapInPandas, and a pandas UDF, each with a session for each worker.

    pip install pyspark pandas pyarrow      # and a Java runtime, 17 or later
    python spark.py
"""

import os
import pickle
import sys
from typing import Iterator

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

import shared

SESSION = None
"""That of a worker, which is a process of its own."""


def session_of(pickled):
    """Made once in each worker, from what was broadcast."""
    global SESSION
    if SESSION is None:
        SESSION = pickle.loads(pickled.value)
    return SESSION


def images_of(column):
    return np.stack(column.to_numpy()).astype(np.float32).reshape(-1, 1, 8, 8)


def main():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session, images = shared.session(), shared.images()
    expected = np.concatenate([session(images[i : i + 1]) for i in range(len(images))])
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.addPyFile(shared.__file__)
    pickled = spark.sparkContext.broadcast(pickle.dumps(session))
    rows = pd.DataFrame({"row": range(len(images)), "image": [image.ravel().tolist() for image in images]})
    frame = spark.createDataFrame(rows).repartition(4)

    def classify(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        run = session_of(pickled)
        for batch in batches:
            yield pd.DataFrame({"row": batch["row"], "scores": list(run(images_of(batch["image"])).astype(float))})

    @pandas_udf("array<float>")
    def scores(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        run = session_of(pickled)
        for batch in batches:
            yield pd.Series(list(run(images_of(batch))))

    for name, found in [
        ("mapInPandas", frame.mapInPandas(classify, "row long, scores array<double>")),
        ("pandas_udf", frame.select("row", scores("image").alias("scores"))),
    ]:
        found = found.orderBy("row").toPandas()["scores"]
        print(f"spark, {name}:", shared.same(np.stack(found.to_numpy()), expected))
    spark.stop()


if __name__ == "__main__":
    main()
