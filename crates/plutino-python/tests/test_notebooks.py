"""What notebooks show."""

import html.parser
import os
import tempfile
import unittest

import numpy as np

import plutino
import support

VOID = {"meta", "link", "br", "input", "img", "hr", "line", "rect", "path", "circle", "use"}

HOSTILE = support.param(
    "pnnx.Input in 0 1 x #x=(2,2)f32",
    "nn.ReLU <script>alert(1)</script> 1 1 x <b>\"'&",
    "torch.neg </td></iframe> 1 1 <b>\"'& y",
    "pnnx.Output out 1 0 y",
)
"""Names that would be markup."""


class Document(html.parser.HTMLParser):
    """The tags of a page, which must be balanced, and what they hold."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.attributes, self.text = [], [], {}, []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes.setdefault(tag, []).append(dict(attributes))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text.append(data)


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.x = np.array([[1, -2], [3, -4]], np.float32)
        cls.session = plutino.Session(HOSTILE, threads=1)

    def reports(self):
        session, x = self.session, self.x
        (y,) = session.run(None, [x])
        wrong = {"x": x, "y": y + 1}
        return {
            "plan": session.plan([x]),
            "memory": session.memory([x]),
            "profile": session.profile([x]),
            "compare": session.compare(wrong),
            "isolate": session.isolate({**wrong, "<b>\"'&": np.maximum(x, 0)}),
        }

    def test_tables_are_markup_of_ours_alone(self):
        for name, report in self.reports().items():
            with self.subTest(report=name):
                page = Document(report._repr_html_())
                allowed = {"table", "caption", "thead", "tbody", "tr", "th", "td"}
                self.assertLessEqual(set(page.tags), allowed)
                self.assertGreater(page.tags.count("tr"), 1)
                self.assertIn("\n", repr(report))

    def test_a_comparison_shows_what_differs(self):
        found = self.reports()["isolate"]
        self.assertIsInstance(found, plutino.Comparison)
        self.assertEqual([value["operand"] for value in found.wrong], ["y"])
        text = " ".join(Document(found._repr_html_()).text)
        self.assertIn("</td></iframe>", text)  # as text, not as tags
        self.assertIn("1 of 2 values differ", text)
        (y,) = self.session.run(None, [self.x])
        self.assertIn("all match", self.session.compare({"x": self.x, "y": y})._repr_html_())

    def test_the_page_of_a_model(self):
        view = self.session.view([self.x], runs=2)
        outer = Document(view._repr_html_())
        self.assertEqual(outer.tags, ["iframe"])
        (frame,) = outer.attributes["iframe"]
        self.assertEqual(frame["sandbox"], "allow-scripts")
        self.assertEqual(frame["srcdoc"], view.html)
        page = Document(view.html)
        self.assertEqual(page.tags.count("iframe"), 0)
        for script in page.attributes["script"]:
            self.assertNotIn("src", script)
        policy = [m["content"] for m in page.attributes["meta"] if "content" in m]
        self.assertTrue(any("default-src 'none'" in content for content in policy))
        self.assertNotIn("<script>alert", view.html)
        self.assertIn('"times":{"runs":2', view.html)
        self.assertIn("plutino.View(", repr(view))

    def test_pages_without_a_run_and_in_files(self):
        plan = self.session.view([(2, 2)])
        self.assertIn('"times":null', plan.html)
        self.assertIn('"steps":[{', plan.html)
        self.assertIn('"plan":{', self.session.view().html)  # by the recorded shape
        open_model = plutino.Session(support.ECHO)
        self.assertIn('"plan":null', open_model.view().html)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            view = self.session.view([self.x], path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), view.html)
        with self.assertRaises(plutino.InputError):
            self.session.view([self.x, self.x])


if __name__ == "__main__":
    unittest.main()
