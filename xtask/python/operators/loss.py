"""Losses, which pnnx passes on raw."""

import torch
from torch.nn import functional as F

from operators.calls import written
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
    "ctc": case(
        lambda x, t: (
            F.ctc_loss(x.log_softmax(2), t + 1, torch.tensor([7, 6]), torch.tensor([3, 2]), reduction="none"),
            F.ctc_loss(x.log_softmax(2), t.flatten() % 2, (7, 2), (2, 4), blank=4, zero_infinity=True),
            F.ctc_loss(x[:, 0].log_softmax(1), t[0, :2] + 1, torch.tensor([5]), torch.tensor([2]), reduction="sum"),
        ),
        (7, 2, 5),
        ints(2, 3, high=4),
    ),
    "class_margins": case(
        lambda x, t, m: (F.multi_margin_loss(x, t, p=2, margin=0.5), F.multilabel_margin_loss(x, m - 1)),
        X,
        CLASSES,
        ints(3, 8, high=9),
    ),
    "more_losses": written(
        """
        F.gaussian_nll_loss a b c full=True
        F.multilabel_soft_margin_loss a c
        """,
        X, X, WITHIN,
    ),
    # pnnx writes what they call.
    "loss_modules": written(
        """
        nn.L1Loss a b
        nn.MSELoss a b reduction=sum
        nn.SmoothL1Loss a b beta=0.5
        nn.HuberLoss a b delta=0.75
        nn.BCELoss c c
        nn.BCEWithLogitsLoss a c
        nn.KLDivLoss a c reduction=batchmean
        nn.PoissonNLLLoss a c log_input=True full=True
        nn.GaussianNLLLoss a b c
        s = torch.sign b
        nn.SoftMarginLoss a s
        nn.HingeEmbeddingLoss a s margin=0.5
        nn.MarginRankingLoss a b s margin=0.25
        t = torch.mul a b
        nn.TripletMarginLoss a b t margin=0.5 p=2.0
        nn.MultiLabelSoftMarginLoss a c
        """,
        X, X, WITHIN,
    ),
    "class_loss_modules": written(
        """
        nn.CrossEntropyLoss a b label_smoothing=0.1
        nn.NLLLoss a b reduction=sum
        F.nll_loss a b ignore_index=2
        F.nll_loss2d d e
        F.cross_entropy a b reduction=none
        nn.MultiMarginLoss a b p=1 margin=0.5
        nn.MultiLabelMarginLoss a c
        nn.CosineEmbeddingLoss a f g margin=0.1
        nn.CosineSimilarity a f dim=1
        nn.PairwiseDistance a f p=3.0
        F.pdist a p=2.0
        """,
        X, CLASSES, ints(3, 8, low=-1, high=8), (2, 5, 3, 4), ints(2, 3, 4, high=5), X, ints(3, low=1, high=2),
    ),
}
