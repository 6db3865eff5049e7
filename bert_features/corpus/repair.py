"""Repair: the missing and damaged shards of a folder are computed again.

Importing this imports no framework.
"""

import logging

from bert_features.corpus.folder import is_tidy, tidy
from bert_features.corpus.holding import holding
from bert_features.corpus.resuming import hint_of_folder
from bert_features.corpus.run import FolderRun
from bert_features.corpus.settings import restore_settings
from bert_features.corpus.summary import Progress
from bert_features.corpus.target import FolderTarget
from bert_features.errors import InputError
from bert_features.files import Location
from bert_features.formats.manifest import Manifest
from bert_features.formats.shard_files import find_damaged

logger = logging.getLogger("bert_features")


def repair(
    folder: Location, *, processes: int = 1, progress: Progress | None = None
) -> tuple[Location, ...]:
    """Computes the shards of a features folder that are missing or damaged.

    The manifest has the settings and the inputs. If its run is not finished, what is left is
    computed too. For `processes` and `progress` see `corpus.job.extract`; shards that are whole
    count as computed.

    Returns:
      The features files that were computed.

    Raises:
      BertFeaturesError: the manifest is damaged; the settings, weights, versions or inputs are not
        the same as of the run; or a shard cannot be computed.
    """
    manifest = Manifest.read(folder)
    recorded = dict(manifest.finished_shards())
    damaged = find_damaged(manifest, recorded)
    whole = recorded.keys() - damaged
    wanted = [shard for shard in range(len(manifest.shards)) if shard not in whole]
    if wanted or manifest.finished is None:
        logger.info("%d of %d shards are to be computed", len(wanted), len(manifest.shards))
        inputs = [entry.path for entry in manifest.inputs]
        try:
            run = FolderRun(
                restore_settings(manifest),
                inputs,
                FolderTarget(folder, manifest.format, overwrite=False),
                processes=processes,
                progress=progress,
                damaged=damaged,
            )
        except InputError as error:
            raise InputError(f"{error}{hint_of_folder(inputs)}") from error
        run.finish()
    elif not is_tidy(folder):  # a run was killed after the last shard
        with holding(folder):
            tidy(folder)
    return tuple(map(manifest.path, wanted))
