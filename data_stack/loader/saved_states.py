"""Makes the states of a loader, and checks those that it shall continue from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.exception import LoaderStateError
from data_stack.loader.place import LoaderPlace
from data_stack.loader.state import LoaderState


@dataclass(frozen=True, slots=True)
class SavedStates:
    """The states of a loader at its present place.

    Attributes:
        place: the place.
        iterator: the samples.
        redraws: whether random layers are redrawn for each epoch.
    """

    place: LoaderPlace
    iterator: DatasetIteratorIF
    redraws: bool

    def make(self) -> LoaderState:
        """Return the place of the next batch, with all that decides what follows it."""
        session = self.place.session
        if session.fingerprint is None:
            session.fingerprint = fingerprint(self.iterator)
        progress = session.progress
        ranks = None
        first_epoch_of_ranks = progress.epoch
        if session.plan.uneven == "keep":
            ranks = self._describe_ranks()
            first_epoch_of_ranks = ranks["origin_epoch"]
        cursors = None
        if session.cursors is not None and session.cursors.epoch >= first_epoch_of_ranks:
            cursors = session.cursors.to_dict()
        return LoaderState(
            seed=session.seed,
            epoch=progress.epoch,
            position=progress.position,
            first_epoch=progress.first_epoch,
            n_samples=self.place.timetable.plan_of(progress.epoch).n_samples,
            order=self.describe_order(),
            fingerprint=session.fingerprint,
            ranks=ranks,
            damaged=session.damage.to_state(),
            cursors=cursors,
        )

    def read(self, state: Mapping[str, Any]) -> LoaderState:
        """Read a state, and check that it is one of this loader.

        Raises:
            LoaderStateError: it is invalid, or belongs to other samples or another order.
        """
        loaded = LoaderState.from_dict(state)
        loaded.check_is_of(self.make(), self.iterator)
        n_samples = self.place.timetable.of_state(loaded).plan_of(loaded.epoch).n_samples
        if loaded.n_samples != n_samples:
            parts = "samples"
            if self.place.budget_batches is not None:
                parts = "batches"
            raise LoaderStateError(
                f"epoch {loaded.epoch} had {loaded.n_samples:,} {parts} when this state was saved, "
                f"and has {n_samples:,} now: the dataset has changed. Start a new training"
            )
        return loaded

    def describe_order(self) -> dict[str, Any]:
        """Return what identifies the order, with lists for tuples, as in a state that was saved."""
        content = self.place.order.content()
        if self.place.budget_batches is not None:
            content = self.place.budget_batches.content()
        described: dict[str, Any] = json.loads(json.dumps(content))
        if not self.redraws:
            described["redraw"] = False
        return described

    def _describe_ranks(self) -> dict[str, int]:
        """Return what a state needs for ranks in different places."""
        plan = self.place.session.plan
        progress = self.place.session.progress
        origin_epoch, origin_position = progress.origin
        return {
            "origin_epoch": origin_epoch,
            "origin_position": origin_position,
            "end_epoch": self.place.end_epoch,
            "n_batches": progress.n_batches,
            "batch_size": plan.batch_size,
            "world": plan.world,
            "differ": int(self.place.are_ranks_apart()),
        }
