"""Linear algebra on matrices that fall into parts: groups of entries with exact zeros between them.

A Gram over blocks, one for each level of a one-hot column, has as many parts as there are blocks, whatever
noise is added to these (`known_zeros`). Eigenvalues, determinants and inverses are then those of the parts,
which cost the sum of their cubes, not the cube of the sum. A matrix without such zeros is one part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from feducb.types import Array, Indices

__all__ = ["Eigenbasis", "Parts"]

_MANY = 24  # entries from which it pays to look for parts


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Which entries belong together.

    Attributes:
        dim: d.
        places: for each size that parts have, (g, b): the entries of g parts of b. Empty: all is one part.
    """

    dim: int
    places: tuple[Indices, ...] = ()

    @classmethod
    def of(cls, *matrices: Array) -> Parts:
        """Those of several symmetric matrices (..., d, d) together: zero between parts in all of them."""
        dim = matrices[0].shape[-1]
        if dim < _MANY:
            return cls(dim)
        joined = np.zeros((dim, dim), dtype=np.bool_)
        for matrix in matrices:
            if np.all(matrix[..., 0, :]):  # the first entry goes with all others
                return cls(dim)
            joined |= (matrix != 0.0).reshape(-1, dim, dim).any(axis=0)
        np.fill_diagonal(joined, True)
        group = joined.argmax(axis=1)  # the first that an entry goes with
        if not np.array_equal(joined, group[:, None] == group):  # no blocks, which would be told by that
            group = connected_components(joined, directed=False)[1]
        _, group, sizes = np.unique(group, return_inverse=True, return_counts=True)
        if len(sizes) == 1:
            return cls(dim)
        order, starts = np.argsort(group, kind="stable"), np.cumsum(sizes) - sizes
        return cls(
            dim,
            tuple(order[starts[sizes == size][:, None] + np.arange(size)] for size in np.unique(sizes)),
        )

    def cut(self, vector: Array) -> list[Array]:
        """(..., d) → (..., g, b) for each size."""
        return [vector[..., some] for some in self.places] or [vector[..., None, :]]

    def cut_matrix(self, matrix: Array) -> list[Array]:
        """(..., d, d) → (..., g, b, b) for each size; what is zero is left out."""
        return [matrix[..., some[:, :, None], some[:, None, :]] for some in self.places] or [
            matrix[..., None, :, :]
        ]

    def join(self, pieces: list[Array]) -> Array:
        """What `cut` had."""
        if not self.places:
            return np.asarray(pieces[0][..., 0, :])
        vector = np.empty((*pieces[0].shape[:-2], self.dim))
        for some, piece in zip(self.places, pieces, strict=True):
            vector[..., some] = piece
        return vector

    def join_matrix(self, pieces: list[Array]) -> Array:
        """What `cut_matrix` had, with the zeros."""
        if not self.places:
            return np.asarray(pieces[0][..., 0, :, :])
        matrix = np.zeros((*pieces[0].shape[:-3], self.dim, self.dim))
        for some, piece in zip(self.places, pieces, strict=True):
            matrix[..., some[:, :, None], some[:, None, :]] = piece
        return matrix

    def together(self, matrix: Array) -> Parts:
        """Those of one more matrix (..., d, d) together with these: itself, if that is zero between parts."""
        within = sum(np.count_nonzero(piece) for piece in self.cut_matrix(matrix))
        if within == np.count_nonzero(matrix):
            return self
        return Parts.of(
            matrix, self.join_matrix([np.ones((*some.shape, some.shape[1])) for some in self.places])
        )

    def solve(self, matrix: Array, vector: Array) -> Array:
        """(..., d), M⁻¹v, of a matrix (..., d, d) that has these parts."""
        pieces = zip(self.cut_matrix(matrix), self.cut(vector), strict=True)
        return self.join([_float(np.linalg.solve(piece, own[..., None])[..., 0]) for piece, own in pieces])

    def inverse(self, matrix: Array) -> Array:
        """(..., d, d), M⁻¹."""
        return self.join_matrix([_float(np.linalg.inv(piece)) for piece in self.cut_matrix(matrix)])

    def log_det(self, matrix: Array) -> Array:
        """(...), log |det M|."""
        return np.asarray(sum(np.linalg.slogdet(one)[1].sum(axis=-1) for one in self.cut_matrix(matrix)))

    def eigenvalues(self, matrix: Array) -> Array:
        """(..., d), rising, of a symmetric one."""
        values = self.join([_float(np.linalg.eigvalsh(piece)) for piece in self.cut_matrix(matrix)])
        return np.sort(values, axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class Eigenbasis:
    """Of a symmetric matrix, part by part.

    Attributes:
        parts: of the matrix.
        values: (..., d), its eigenvalues, in an order of their own.
        vectors: for each size of parts (..., g, b, b), the eigenvectors as columns.
    """

    parts: Parts
    values: Array
    vectors: list[Array]

    @classmethod
    def of(cls, matrix: Array, parts: Parts | None = None) -> Eigenbasis:
        """Of (..., d, d), which may be known to have certain parts."""
        parts = Parts.of(matrix) if parts is None else parts
        solved = [np.linalg.eigh(piece) for piece in parts.cut_matrix(matrix)]
        return cls(parts, parts.join([values for values, _ in solved]), [vectors for _, vectors in solved])

    def turn_in(self, vector: Array) -> Array:
        """(..., d), in this basis."""
        pieces = zip(self.vectors, self.parts.cut(vector), strict=True)
        return self.parts.join([np.einsum("...dk,...d->...k", basis, piece) for basis, piece in pieces])

    def turn_out(self, entries: Array) -> Array:
        """(..., d), out of this basis."""
        pieces = zip(self.vectors, self.parts.cut(entries), strict=True)
        return self.parts.join([np.einsum("...dk,...k->...d", basis, piece) for basis, piece in pieces])

    def matrix(self, entries: Array) -> Array:
        """(..., d, d), with these eigenvalues (..., d)."""
        pieces = zip(self.vectors, self.parts.cut(entries), strict=True)
        return self.parts.join_matrix(
            [(basis * piece[..., None, :]) @ np.swapaxes(basis, -1, -2) for basis, piece in pieces]
        )


def _float(array: NDArray[np.floating[Any]]) -> Array:
    """For numpy's own functions are typed as any precision."""
    return np.asarray(array, dtype=np.float64)
