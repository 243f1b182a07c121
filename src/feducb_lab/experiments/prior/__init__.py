"""Players of earlier work, one paper a file, each at its best under one and the same re-accounted (ε, δ).

| file | paper | in worlds of | neighbours differ in |
|---|---|---|---|
| `shariff_sheffet` | Shariff & Sheffet 2018, LinUCB by oneself | fresh contexts | one interaction |
| `zhou_chowdhury` | Zhou & Chowdhury 2024, silos with trees | fresh contexts | one interaction |
| `chowdhury_zhou` | Chowdhury & Zhou 2022, shuffled batches | fresh contexts | one interaction |
| `reweighted` | Chen, Li, Rakhlin & Simchi-Levi 2025, weighted epochs | fresh contexts | one interaction |
| `hanna` | Hanna, Girgis, Fragouli & Diggavi 2022, core sets | fixed actions | one reward |
| `li_zhou_ji` | Li, Zhou & Ji 2022, elimination with clients | fixed actions | a person's rewards |

What they share: `batches` (releases at fixed rounds on the library's simulator), `by_itself` (players that it
does not know), `elimination` (designs and widths over a fixed set), `shuffling` (amplification), `fixed_set`
(the world of fixed actions, and ours in it).
"""
