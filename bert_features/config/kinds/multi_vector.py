"""Kind `multi_vector`: a vector of each token for late interaction, as ColBERT makes them."""

from typing import Any

from bert_features.config.features import OutputSpec
from bert_features.config.kinds.base import Context, OutputKind, make_spec
from bert_features.config.kinds.layers import check_small
from bert_features.config.poolings import DenseModule
from bert_features.errors import ConfigError


class MultiVector(OutputKind):
    """The tokens of a document or a query, projected and scaled as the checkpoint's files say."""

    name = "multi_vector"
    summary = "a vector of each token for late interaction, of a ColBERT or bge-m3"
    settings = frozenset(["dtype", "scale_from"])
    levels = ("token",)
    poolings = ("none",)
    needs = "projection"
    has_vectors = True
    small_levels = ("token",)
    search = "maxsim"
    on_host = True  # which leaves out the tokens of the skip list
    packs_by_itself = False  # rows of queries have tokens that the others do not see

    def names(self, output: Any, num_layers: int) -> list[str]:
        """One name."""
        return [output.name or self.name]

    def specs(self, output: Any, context: Context) -> list[OutputSpec]:
        """One feature of the last layer."""
        check_small(self, output)
        width = context.config.hidden_size
        for module in context.modules:
            if isinstance(module, DenseModule):
                if module.inputs != width:
                    raise ConfigError(
                        f"{module.path or 'the projection'} is for {module.inputs} values, and the "
                        f"vectors before it have {width}; the files are of different checkpoints"
                    )
                width = module.outputs
        return [
            make_spec(
                output,
                name=self.names(output, 1)[0],
                layers=(-1,),
                states=(context.config.num_hidden_layers,),
                width=width,
                level="vector",
                normalize=context.modules[-1:] == ("normalize",),
                modules=tuple(context.modules),
            )
        ]
