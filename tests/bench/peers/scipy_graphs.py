"""scipy's graph routines: each starts from all edges, an array of (src, dst), and keeps nothing for the next change.

Nodes are the integers below `nodes`.
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components


def components(edges, nodes):
    """Return each node that has an edge with the least one that it is connected to, in either direction."""
    _, part = connected_components(_matrix(edges, nodes), directed=False)
    _, least = np.unique(part, return_index=True)
    present = np.zeros(nodes, np.bool_)
    present[edges.ravel()] = True
    present = np.flatnonzero(present)
    return np.stack([present, least[part[present]]], axis=1)


def distances(edges, nodes, root):
    """Return each node that can be reached from the root, in either direction, with the least number of edges to it."""
    order, predecessors = breadth_first_order(_matrix(edges, nodes), root, directed=False)
    places = np.empty(nodes, np.int64)
    places[order] = np.arange(len(order))
    # In this order predecessors are in order too: a level ends where they leave the level before.
    before = places[predecessors[order[1:]]]
    distance = np.zeros(len(order), np.int64)
    level, end = 0, 1
    while end < len(order):
        level += 1
        start, end = end, 1 + int(np.searchsorted(before, end))
        distance[start:end] = level
    return np.stack([order, distance], axis=1)


def cyclic(edges, nodes):
    """Return the edges that lie within a strongly connected component: those from which a way leads back."""
    _, part = connected_components(_matrix(edges, nodes), connection="strong")
    return edges[part[edges[:, 0]] == part[edges[:, 1]]]


def _matrix(edges, nodes):
    return coo_array((np.ones(len(edges), np.int32), edges.T), shape=(nodes, nodes)).tocsr()
