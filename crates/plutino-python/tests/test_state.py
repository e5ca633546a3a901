"""Values that one run hands to the next."""

import copy
import os
import pickle
import tempfile
import threading
import unittest

import numpy as np

import plutino
import support

SUM = support.param(
    "pnnx.Input in0 0 1 x #x=(2)f32",
    "pnnx.Input in1 0 1 before #before=(2)f32",
    "pnnx.Expression sum 2 1 x before after expr=add(@0,@1) #after=(2)f32",
    "torch.neg neg 1 1 after y",
    "pnnx.Output out0 1 0 after",
    "pnnx.Output out1 1 0 y",
)
"""The sum of all inputs so far, and its negative."""

CACHE = support.param(
    "pnnx.Input in0 0 1 row #row=(1,3)f32",
    "pnnx.Input in1 0 1 past #past=(?,3)f32",
    "torch.cat cat 2 1 past row all dim=0 #all=(?,3)f32",
    "torch.sum sum 1 1 all total dim=(0) keepdim=False",
    "pnnx.Output out0 1 0 total",
    "pnnx.Output out1 1 0 all",
)
"""All rows so far."""


def ones(value):
    return np.full(2, value, np.float32)


class States(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = plutino.Session(SUM, threads=1)

    def step(self, state, value, session=None):
        (found,) = (session or self.session).run(None, [ones(value)], state=state)
        return float(found[0])

    def test_what_is_carried_adds_up(self):
        state = self.session.state({"after": "before"})
        self.assertEqual(state.carried, {"before": "after"})
        self.assertEqual([self.step(state, x) for x in (1, 2, 3)], [-1, -3, -6])
        self.assertEqual(state["before"].tolist(), [6, 6])
        self.assertEqual(list(state.values()), ["before"])
        self.assertGreaterEqual(state.nbytes, 8)
        state.reset()
        self.assertEqual(self.step(state, 5), -5)
        state["before"] = ones(100)
        self.assertEqual(self.step(state, 1), -101)
        self.assertIn("after -> before", repr(state))

    def test_positions_and_names_of_operators_will_do(self):
        for output, input in (("out0", "in1"), ("sum", "before")):
            state = self.session.state().carry(output, input)
            self.assertEqual([self.step(state, x) for x in (1, 2)], [-1, -3])

    def test_one_session_has_several(self):
        one, other = (self.session.state({"after": "before"}) for _ in range(2))
        self.step(one, 1)
        self.step(other, 10)
        branch = one.copy()
        self.assertEqual([self.step(one, 1), self.step(other, 1)], [-2, -11])
        self.assertEqual(self.step(branch, 4), -5)
        self.assertEqual(self.step(copy.copy(branch), 1), -6)
        self.assertEqual(self.step(branch, 2), -7)

    def test_a_start_is_where_resets_go(self):
        state = self.session.state({"after": "before"}).start("before", ones(7))
        self.assertEqual([self.step(state, 1), self.step(state, 1)], [-8, -9])
        self.assertEqual(self.step(state.reset(), 1), -8)

    def test_saved_loaded_and_pickled(self):
        state = self.session.state({"after": "before"}).start("before", ones(7))
        self.step(state, 1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.npz")
            state.save(path)
            with np.load(path) as found:
                self.assertEqual(found["before"].tolist(), [8, 8])
            again = self.session.state({"after": "before"}).load(path)
            self.assertEqual(self.step(again, 1), -9)
            np.savez(path, before=np.zeros((2, 2), np.float64))
            with self.assertRaises(plutino.StateError):
                again.load(path)
            with self.assertRaises(plutino.Error):
                again.load(os.path.join(folder, "nothing.npz"))
        self.assertEqual(again["before"].tolist(), [9, 9])  # as it was
        other = pickle.loads(pickle.dumps(state))
        self.assertEqual(self.step(other, 1, other._session), -9)
        self.assertEqual(self.step(other.reset(), 1, other._session), -8)
        state.restore({"before": ones(3)})
        self.assertEqual(self.step(state, 1), -4)

    def test_what_is_carried_can_be_asked_for_and_looked_at(self):
        state = self.session.state({"after": "before"})
        (total,) = self.session.run(["after"], {"x": ones(4)}, state=state)
        total += 100  # the caller's own
        self.assertEqual(self.step(state, 1), -5)
        profile = self.session.profile([ones(1)], state=state)
        self.assertTrue(profile["steps"])
        self.assertEqual(self.step(state, 1), -7)

    def test_a_cache_grows(self):
        session = plutino.Session(CACHE, threads=1)
        state = session.state({"all": "past"})
        rows = np.arange(60, dtype=np.float32).reshape(20, 1, 3)
        for at, row in enumerate(rows):
            (total,) = session.run(None, [row], state=state)
            np.testing.assert_array_equal(total, rows[: at + 1].sum((0, 1)))
        self.assertEqual(state["past"].shape, (20, 3))
        state.reset()
        self.assertEqual(state["past"].shape, (0, 3))
        state.start_empty("past", np.int64(0))
        again = pickle.loads(pickle.dumps(state))
        (total,) = again._session.run(None, [rows[1]], state=again)
        np.testing.assert_array_equal(total, rows[1, 0])

    def test_names_of_what_is_carried(self):
        state = self.session.state({"after": "before"})
        self.assertEqual(list(state), ["before"])
        for name in ("before", "in1"):
            self.assertIn(name, state)
        for name in ("x", "nothing", 5, None):
            self.assertNotIn(name, state)

    def test_what_cannot_be_is_said(self):
        def refused(text, call, error=plutino.StateError):
            with self.assertRaisesRegex(error, text) as caught:
                call()
            return caught.exception

        state = self.session.state({"after": "before"})
        self.assertEqual(
            refused("carried to twice", lambda: state.carry("y", "before")).input, "before"
        )
        refused("nothing is carried to", lambda: state.start("x", ones(1)))
        refused("nothing is carried to", lambda: state["x"])
        refused("f64|f32", lambda: state.start("before", np.zeros(2)))
        refused("shape", lambda: state.start("before", np.zeros((2, 2), np.float32)))
        both = {"x": ones(1), "before": ones(1)}
        refused("fed, and carried", lambda: self.session.run(None, both, state=state))
        refused(
            "beside the state",
            lambda: self.session.run(None, [ones(1), ones(1)], state=state),
            plutino.InputError,
        )
        refused(
            "the session runs", lambda: plutino.Session(SUM).run(None, [ones(1)], state=state)
        )
        refused("dim", lambda: state.start_empty("before", -1))
        refused("dim", lambda: state.start_empty("before", 2**70))
        refused("strings", lambda: state[5])
        refused("strings", lambda: state.carry("after", 5))
        refused("a mapping", lambda: state.restore([ones(1)]))
        refused("a mapping", lambda: self.session.state("after"))
        refused("no operand|not", lambda: state.carry("nothing", "x"), plutino.InputError)
        with self.assertRaises(plutino.DeadlineExceeded):
            self.session.run(None, [ones(1)], state=state, timeout=0)
        self.assertEqual(self.step(state, 1), -1)  # a run that fails changes nothing

    def test_threads_take_turns(self):
        state = self.session.state({"after": "before"})
        threads = [
            threading.Thread(target=lambda: [self.step(state, 1) for _ in range(50)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(state["before"].tolist(), [200, 200])



class Kept(unittest.TestCase):
    def setUp(self):
        self.session = plutino.Session(SUM, threads=1)

    def test_what_is_kept_is_fed_and_removed(self):
        (y,), (after,) = self.session.run_keeping("after", None, [ones(1), ones(2)])
        np.testing.assert_array_equal(y, ones(-3))
        np.testing.assert_array_equal(after.get(), ones(3))
        self.assertEqual(self.session.stored_bytes, 8)
        (found, _) = self.session.run(None, {"x": ones(4), "before": after})
        np.testing.assert_array_equal(found, ones(7))
        x = self.session.put(ones(10))
        (found,), kept = self.session.run_keeping([], ["after"], [x, after])
        self.assertEqual(kept, [])
        np.testing.assert_array_equal(found, ones(13))
        after.remove()
        with self.assertRaises(plutino.StoreError):
            after.get()
        with self.assertRaises(plutino.StoreError):
            self.session.run(None, [x, after])
        self.assertEqual(self.session.stored_bytes, 8)

    def test_handles_are_of_one_session(self):
        x = self.session.put(ones(1))
        with self.assertRaises(plutino.StoreError):
            plutino.Session(SUM, threads=1).run(None, [x, ones(1)])
        with self.assertRaises(plutino.Error):
            self.session.run_keeping("nobody", None, [x, ones(1)])

    def test_what_is_kept_counts(self):
        session = plutino.Session(SUM, threads=1, max_memory=1 << 20)
        with self.assertRaises(plutino.BudgetExceeded):
            session.put(np.zeros(1 << 19, np.float32))


if __name__ == "__main__":
    unittest.main()
