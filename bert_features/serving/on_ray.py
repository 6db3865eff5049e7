"""The service on Ray Serve, for the machines of a cluster: the same application in each replica.

serve run bert_features.serving.on_ray:app checkpoint=minilm replicas=4
"""

import os
from typing import Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.serve_settings import TOKEN, ServeSettings
from bert_features.errors import MissingExtraError
from bert_features.machine.quiet_tensorflow import claim_process
from bert_features.serving.run import config_with_outputs
from bert_features.serving.worker import load_app

# A replica refuses requests long before; Ray itself would let them wait without an answer.
_MAX_ONGOING = 8192


def app(arguments: dict[str, Any]) -> Any:
    """The application for `serve run`, and for the `import_path` of a Serve configuration.

    Args:
      arguments: settings of `extract` by name; `replicas`, the number of replicas; and
        `allowed_hosts`, see `ServeSettings`, without which any name is accepted. The token is
        BERT_FEATURES_TOKEN of the environment.

    Raises:
      CheckpointError: the checkpoint is not usable.
      ConfigError: a setting does not fit.
      MissingExtraError: Ray Serve is not installed.
    """
    try:
        from ray import serve
    except ImportError as error:
        raise MissingExtraError("Ray Serve", install="'ray[serve]>=2.60'") from error
    replicas = int(arguments.pop("replicas", 1))
    settings = ServeSettings.of(
        token=os.environ.get(TOKEN) or None,
        replicas=replicas,
        host="0.0.0.0",  # where Ray listens is not known here
        allowed_hosts=str(arguments.pop("allowed_hosts", "")),
    )
    config = config_with_outputs(ExtractConfig.of(arguments))

    def build() -> Any:
        claim_process()
        return load_app(config, settings)

    replica = serve.ingress(build)()
    deployment = serve.deployment(
        replica, name="bert_features", num_replicas=replicas, max_ongoing_requests=_MAX_ONGOING
    )
    return deployment.bind()
