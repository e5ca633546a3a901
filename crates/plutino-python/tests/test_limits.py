"""What ends a run early: time, another thread, Ctrl-C, a task that is cancelled."""

import asyncio
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import plutino
import support

STEPS = 2000
LONG = support.chain(STEPS)
"""With 1000 x 1000 numbers: 4 TFLOP, more than ten seconds on any machine."""

LATE = 5.0
"""Seconds after which a run was surely not ended by what was to end it. (It takes milliseconds,
where the machine has nothing else to do; a test must hold where it has.)"""


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = plutino.Session(LONG, threads=1)
        cls.x = np.zeros((1000, 1000), np.float32)
        cls.session.plan([cls.x])  # so that it is the run that ends early, on a busy machine as well

    def ends(self, error, run, begun=None):
        start = time.perf_counter()
        with self.assertRaises(error) as raised:
            run()
        self.assertLess(time.perf_counter() - (begun or [start])[-1], LATE)
        return raised.exception

    def test_a_deadline(self):
        run = lambda: self.session.run(None, [self.x], timeout=0.1)
        error = self.ends(plutino.DeadlineExceeded, run, [time.perf_counter() + 0.1])
        self.assertIsInstance(error, TimeoutError)
        self.assertEqual(error.steps, STEPS)
        self.assertLess(error.done, STEPS)
        self.assertEqual(error.kind, "torch.matmul")
        self.assertRegex(error.operator, r"^m\d+$")
        self.ends(plutino.DeadlineExceeded, lambda: self.session(self.x, timeout=0))
        small = np.zeros((2, 2), np.float32)
        self.assertEqual(self.session(small, timeout=60).shape, (2, 2))
        for wrong in (-1, float("nan")):
            with self.assertRaises(plutino.OptionError):
                self.session(small, timeout=wrong)
        self.session(small, timeout=float(1 << 40))

    def test_loading_has_a_deadline(self):
        with self.assertRaises(plutino.DeadlineExceeded):
            plutino.Session(support.DIGITS, timeout=0)

    def test_another_thread_cancels(self):
        token, begun = plutino.CancelToken(), []

        def cancel():
            begun.append(time.perf_counter())
            token.cancel()

        timer = threading.Timer(0.1, cancel)
        timer.start()
        run = lambda: self.session.run(None, [self.x], cancel=token)
        error = self.ends(plutino.Cancelled, run, begun)
        self.assertTrue(token.cancelled)
        self.assertEqual(error.steps, STEPS)
        self.assertIn("cancelled", repr(token))
        timer.join()

    @unittest.skipIf(sys.platform == "win32", "signals are sent otherwise")
    def test_ctrl_c(self):
        # A shell lets jobs in the background ignore the signal, and Python keeps to that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        begun = []

        def interrupt():
            begun.append(time.perf_counter())
            signal.raise_signal(signal.SIGINT)

        timer = threading.Timer(0.2, interrupt)
        timer.start()
        self.ends(KeyboardInterrupt, lambda: self.session(self.x), begun)
        timer.join()
        # The session is whole.
        self.assertEqual(self.session(np.zeros((2, 2), np.float32)).shape, (2, 2))

    @unittest.skipIf(sys.platform == "win32", "there are no alarms")
    def test_handlers_of_signals_run_meanwhile(self):
        seen = []
        old = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.perf_counter()))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with self.assertRaises(plutino.DeadlineExceeded):
                self.session(self.x, timeout=2)
            ended = time.perf_counter()
        finally:
            signal.signal(signal.SIGALRM, old)
        self.assertEqual(len(seen), 1)
        self.assertLess(seen[0], ended - 0.5)

    def test_other_threads_run_meanwhile(self):
        """The interpreter's lock is not held."""
        count, token = [0], plutino.CancelToken()

        def work():
            end = time.perf_counter() + 0.2
            while time.perf_counter() < end:
                count[0] += 1
            token.cancel()

        thread = threading.Thread(target=work)
        thread.start()
        with self.assertRaises(plutino.Cancelled):
            self.session.run(None, [self.x], cancel=token)
        thread.join()
        self.assertGreater(count[0], 100)

    def test_many_threads_share_a_session(self):
        session = plutino.Session(support.DIGITS, threads=2)
        inputs, _ = support.digits()
        batches = [inputs[i : i + 8] for i in range(0, 64, 8)]
        expected = [session(batch) for batch in batches]
        failures = []

        def work(index):
            for _ in range(20):
                if not np.array_equal(session(batches[index]), expected[index]):
                    failures.append(index)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(batches))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class Async(unittest.TestCase):
    def test_runs_beside_the_event_loop(self):
        session = plutino.Session(support.DIGITS, threads=1)
        inputs, _ = support.digits()

        async def main():
            runs = [session.run_async(None, [inputs[i : i + 4]]) for i in range(0, 40, 4)]
            return np.concatenate([found for (found,) in await asyncio.gather(*runs)])

        np.testing.assert_allclose(asyncio.run(main()), session(inputs[:40]), rtol=0, atol=1e-4)

    def test_a_task_that_is_cancelled_ends_the_run(self):
        session = plutino.Session(LONG, threads=1)
        x = np.zeros((1000, 1000), np.float32)
        token = plutino.CancelToken()

        async def main():
            start = time.perf_counter()
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(session.run_async(None, [x], cancel=token), 0.1)
            return time.perf_counter() - start

        # The loop's threads are waited for at the end: the run has ended with the task.
        start = time.perf_counter()
        waited = asyncio.run(main())
        self.assertTrue(token.cancelled)
        self.assertLess(waited, LATE)
        self.assertLess(time.perf_counter() - start, 2 * LATE)


@unittest.skipIf(sys.platform == "win32", "signals are sent otherwise")
class Program(unittest.TestCase):
    def test_ctrl_c_ends_a_program(self):
        """As from a terminal: the signal goes to the process, which says KeyboardInterrupt."""
        code = (
            "import numpy, plutino, signal, support\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "session = plutino.Session(support.chain(2000), threads=2)\n"
            "print('ready', flush=True)\n"
            "session(numpy.zeros((1000, 1000), numpy.float32))\n"
        )
        program = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=pathlib.Path(support.__file__).parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "ready\n")
        time.sleep(0.3)
        start = time.perf_counter()
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=30)
        self.assertLess(time.perf_counter() - start, 2 * LATE)
        self.assertIn("KeyboardInterrupt", errors)
        self.assertNotEqual(program.returncode, 0)


if __name__ == "__main__":
    unittest.main()
