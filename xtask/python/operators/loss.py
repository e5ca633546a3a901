"""Losses, which pnnx passes on raw."""

import torch
from torch.nn import functional as F

from operators.case import case, floats, ints

X = (3, 8)
CLASSES = ints(3, high=8)
SIGNS = ints(3, high=2)
WITHIN = floats(3, 8, low=0.05, high=0.95)

CASES = {
    "distance_losses": case(
        lambda x, y: (
            F.l1_loss(x, y),
            F.mse_loss(x, y, reduction="none"),
            F.smooth_l1_loss(x, y, reduction="sum", beta=0.5),
            F.huber_loss(x, y, delta=0.75),
        ),
        X,
        X,
    ),
    "binary_cross_entropy": case(
        lambda x, y, w: (F.binary_cross_entropy(x, y), F.binary_cross_entropy(x, y, weight=w, reduction="none")),
        WITHIN,
        WITHIN,
        (8,),
    ),
    "binary_cross_entropy_with_logits": case(
        lambda x, y, w: (
            F.binary_cross_entropy_with_logits(x, y),
            F.binary_cross_entropy_with_logits(x, y, w, reduction="sum", pos_weight=w + 3),
        ),
        X,
        WITHIN,
        (8,),
    ),
    "divergence_losses": case(
        lambda x, y: (
            F.kl_div(x, y, reduction="batchmean"),
            F.kl_div(x, y, reduction="sum", log_target=True),
            F.poisson_nll_loss(x, y, full=True),
        ),
        X,
        WITHIN,
    ),
    "margin_losses": case(
        lambda x, y, s: (
            F.soft_margin_loss(x, y.sign()),
            F.hinge_embedding_loss(x, y.sign(), 0.5),
            F.margin_ranking_loss(x, y, y.sign(), 0.25),
            F.cosine_embedding_loss(x, y, s * 2 - 1, 0.1),
            F.triplet_margin_loss(x, y, x * y, swap=True),
        ),
        X,
        X,
        SIGNS,
    ),
    "cross_entropy": case(
        lambda x, t, w: (
            F.cross_entropy(x, t),
            F.cross_entropy(x, t, w.abs(), ignore_index=2, reduction="sum", label_smoothing=0.1),
            F.nll_loss(x, t, reduction="none"),
        ),
        X,
        CLASSES,
        (8,),
    ),
    "cross_entropy_pixels": case(lambda x, t: F.cross_entropy(x, t), (2, 5, 3, 4), ints(2, 3, 4, high=5)),
    "cross_entropy_probabilities": case(
        lambda x, t, w: (F.cross_entropy(x, t, label_smoothing=0.2), F.cross_entropy(x, t, w, reduction="none")),
        X,
        WITHIN,
        (8,),
    ),
    "class_margins": case(
        lambda x, t, m: (F.multi_margin_loss(x, t, p=2, margin=0.5), F.multilabel_margin_loss(x, m - 1)),
        X,
        CLASSES,
        ints(3, 8, high=9),
    ),
}
