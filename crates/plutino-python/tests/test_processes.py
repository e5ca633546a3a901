"""Sessions in other processes: pickled, copied, forked."""

import copy
import multiprocessing
import os
import pickle
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import plutino
import support

SHARED = None
"""A session that children of a fork have from their parent."""


def run_pickled(session, x):
    return session(x)


def run_shared(x):
    return SHARED(x)


def fork(work):
    """Does `work` in a child, which says whether it returned True; ends it where it hangs."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


class Copies(unittest.TestCase):
    def test_pickle_and_copy(self):
        inputs, _ = support.digits()
        path = support.DIGITS
        weights = path.with_suffix(".bin").read_bytes()
        for session in [
            plutino.Session(path, threads=2, memory="low", batch_invariant=True),
            plutino.Session(path.read_bytes(), bin=weights, threads=2),
        ]:
            expected = session(inputs)
            for again in [
                pickle.loads(pickle.dumps(session)),
                copy.copy(session),
                copy.deepcopy(session),
            ]:
                self.assertIsNot(again, session)
                self.assertEqual(again.threads, 2)
                self.assertEqual(again.memory((9, 1, 8, 8)), session.memory((9, 1, 8, 8)))
                np.testing.assert_array_equal(again(inputs), expected)

    def test_a_path_that_is_relative_is_found_from_elsewhere(self):
        before = os.getcwd()
        os.chdir(support.DIGITS.parent)
        try:
            pickled = pickle.dumps(plutino.Session(support.DIGITS.name))
        finally:
            os.chdir(before)
        self.assertEqual(pickle.loads(pickled).get_inputs()[0].name, "0")

    def test_a_pickle_of_a_path_is_small(self):
        self.assertLess(len(pickle.dumps(plutino.Session(support.DIGITS))), 1000)


class Processes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global SHARED
        cls.inputs = support.digits()[0][:16]
        SHARED = plutino.Session(support.DIGITS, threads=3)
        cls.expected = SHARED(cls.inputs)

    def test_pools(self):
        for method in multiprocessing.get_all_start_methods():
            with self.subTest(method=method):
                context = multiprocessing.get_context(method)
                with ProcessPoolExecutor(2, mp_context=context) as pool:
                    runs = [pool.submit(run_pickled, SHARED, self.inputs) for _ in range(4)]
                    for run in runs:
                        np.testing.assert_array_equal(run.result(60), self.expected)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_child_has_threads_of_its_own(self):
        same = lambda: np.array_equal(SHARED(self.inputs), self.expected)
        for _ in range(3):
            self.assertTrue(fork(same))
            np.testing.assert_array_equal(SHARED(self.inputs), self.expected)
        if sys.platform == "linux":
            tasks = lambda: len(os.listdir("/proc/self/task"))
            self.assertTrue(fork(lambda: tasks() == 1 and same() and tasks() == SHARED.threads))
        # And a child of the child, and workers that end as programs do, all objects freed.
        self.assertTrue(fork(lambda: fork(same)))
        context = multiprocessing.get_context("fork")
        with context.Pool(2) as pool:
            for found in pool.map(run_shared, [self.inputs] * 4):
                np.testing.assert_array_equal(found, self.expected)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_fork_while_runs_are_under_way(self):
        session = plutino.Session(support.DIGITS, threads=2)
        expected = session(self.inputs)
        end = threading.Event()

        def work():
            sizes = 0
            while not end.is_set():
                sizes = sizes % 16 + 1
                session(self.inputs[:sizes])  # new plans all the time
                if sizes == 16:
                    session.release_memory()

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                self.assertTrue(fork(lambda: np.array_equal(session(self.inputs), expected)))
        finally:
            end.set()
            for thread in threads:
                thread.join()

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_child_needs_no_file_while_its_parent_rests(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("model.pnnx.param", "model.pnnx.bin"):
                with open(os.path.join(folder, name), "wb") as file:
                    file.write((support.DIGITS.parent / name).read_bytes())
            session = plutino.Session(os.path.join(folder, "model.pnnx.param"), threads=2)
        self.assertTrue(fork(lambda: np.array_equal(session(self.inputs), self.expected)))


if __name__ == "__main__":
    unittest.main()
