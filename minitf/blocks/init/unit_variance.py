"""Queries, keys and values of variance 1."""

from torch import nn

from minitf.blocks.init import Rule, drawing


class UnitVariance(Rule):
    """N(0, 1 / inputs) for matrices, N(0, 1) for tables: unit variance. Source: LeCun et al. 1998, section 4.6.

    q, k and v start with variance 1: W_Q, W_K, W_V ~ N(0, 1 / d_model), and W_O ~ N(0, 1 / (n_heads d_value)). In the
    FFN, too, each matrix gives out the mean square that it takes in; what the activation takes away between them (half
    of it with ReLU) is not made up for. A table that is multiplied by a factor when it is read is divided by it here.

    A head that is tied to the table shares its N(0, 1): logits then have a standard deviation of sqrt(d_model) instead
    of 1, and training starts at a loss far above ln V. model.tie_embeddings=false gives the head a matrix of its own,
    with which it starts near ln V + 1/2.
    """

    def __call__(self, model: nn.Module) -> None:
        super().__call__(model)
        draw = drawing(model)
        for module in model.modules():  # again: a tied head has filled the table as its matrix
            if isinstance(module, nn.Embedding):
                with draw(module.weight):
                    self.table(module)

    def matrix(self, linear: nn.Linear) -> None:
        nn.init.normal_(linear.weight, std=linear.in_features**-0.5)

    def table(self, embedding: nn.Embedding) -> None:
        nn.init.normal_(embedding.weight, std=1 / getattr(embedding, "factor", 1.0))
