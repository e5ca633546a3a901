"""Models of several files: branches, loops, and what they run."""

import pathlib
import pickle
import shutil
import tempfile
import unittest

import numpy as np

import plutino
import support

PROGRAMS = support.ROOT / "fixtures" / "programs"


def arrays(program, name):
    with np.load(PROGRAMS / program / name) as found:
        return [found[key] for key in sorted(found)]


class Definitions(unittest.TestCase):
    def close(self, program, session):
        for end in ("", "2"):
            inputs, expected = arrays(program, f"inputs{end}.npz"), arrays(
                program, f"outputs{end}.npz"
            )
            for found, each in zip(session.run(None, inputs), expected):
                np.testing.assert_allclose(found, each, rtol=1e-5, atol=1e-5)

    def test_they_are_given_as_a_folder_or_one_by_one(self):
        for program in ("early_exit", "gru_scan", "newton"):
            path, folder = PROGRAMS / program / "model", PROGRAMS / program / "definitions"
            kinds = {file.name[: -len(".pnnx.param")]: file for file in folder.glob("*.param")}
            weights = {kind: file.with_suffix(".bin") for kind, file in kinds.items()}
            contents = {
                kind: (file.read_bytes(), weights[kind].read_bytes())
                if weights[kind].exists()
                else file.read_bytes()
                for kind, file in kinds.items()
            }
            param = path.with_name("model.pnnx.param").read_bytes()
            for session in (
                plutino.Session(path, definitions=folder),
                plutino.Session(path, definitions=kinds),
                plutino.Session(param, definitions=contents),
            ):
                with self.subTest(program=program, session=session):
                    self.close(program, session)
                    self.close(program, pickle.loads(pickle.dumps(session)))

    def test_those_beside_a_model_are_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            shutil.copytree(PROGRAMS / "early_exit" / "definitions", folder / "net.definitions")
            shutil.copy(PROGRAMS / "early_exit" / "model.pnnx.param", folder / "net.pnnx.param")
            for name in ("net", "net.pnnx", "net.pnnx.param"):
                self.close("early_exit", plutino.Session(folder / name))
                apart = plutino.Session(folder / name, bin=b"")  # as well without the path alone
                self.close("early_exit", pickle.loads(pickle.dumps(apart)))
                kinds = {"early.Exit": folder / "net.definitions" / "early.Exit"}
                self.close("early_exit", plutino.Session(folder / name, bin=b"", definitions=kinds))
            (folder / "net.definitions" / "early.Exit.pnnx.param").unlink()
            with self.assertRaises(plutino.UnsupportedOperators) as caught:
                plutino.Session(folder / "net")
            self.assertIn("early.Exit", str(caught.exception))

    def test_what_is_not_there_is_said(self):
        path = PROGRAMS / "early_exit" / "model"
        with self.assertRaises(plutino.ModelError):
            plutino.Session(path, definitions=PROGRAMS / "nowhere")
        with self.assertRaises(plutino.ModelNotFound):
            plutino.Session(path, definitions={"early.Stem": PROGRAMS / "nowhere"})
        with self.assertRaises(plutino.ModelError):
            plutino.Session(path, definitions={"early.Stem": b"nothing"})

    def test_a_profile_has_the_trips(self):
        folder = PROGRAMS / "gru_scan"
        session = plutino.Session(folder / "model", definitions=folder / "definitions")
        profile = session.profile(arrays("gru_scan", "inputs.npz"))
        self.assertEqual([frame["trip"] for frame in profile["frames"]], list(range(9)))
        frame = profile["frames"][0]
        self.assertEqual((frame["operator"], frame["kind"]), ("gru", "rnn.Cell"))
        self.assertEqual((frame["part"], frame["frames"]), ("body", []))
        self.assertEqual(profile["frames_left_out"], 0)
        self.assertLessEqual(sum(frame["seconds"] for frame in profile["frames"]), profile["total"])


if __name__ == "__main__":
    unittest.main()
