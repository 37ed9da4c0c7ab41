"""The constraint, parameter count, cost and reference of every layer and network. Data only, no torch.

`parameters` counts one unidirectional layer without readout, as an expression in N (hidden_size), I (input_size) and
the options named; `cost` is that of one time step, and that of forming the matrix once per pass.

Of a network over sequences of objects, `constraint` is what it decides from, `parameters` counts all of it, in E
(encoder and normalisation), T (objects), y (classes) and n (`hidden`), and `cost` is that of a sequence after encoding.
"""

from __future__ import annotations

from typing import NamedTuple


class Model(NamedTuple):
    """What `kreiss list models` shows of a layer or network."""

    constraint: str
    parameters: str
    cost: str
    reference: str


MODELS: dict[str, Model] = {
    "rnn": Model("none", "N*N + N*I + 2*N", "N² + NI", "elman1990"),
    "irnn": Model("none; starts at the identity", "N*N + N*I + 2*N", "N² + NI", "le2015"),
    "orthrnn": Model("none; starts orthogonal", "N*N + N*I + N", "N² + NI", "henaff2016"),
    "exprnn": Model("orthogonal", "N*(N-1)//2 + N*I + N", "N² + NI; N³ per pass", "lezcano2019cheap"),
    "scornn": Model("orthogonal, scaled Cayley", "N*(N-1)//2 + N*I + N", "N² + NI; N³ per pass", "helfrich2018"),
    "ornn": Model("orthogonal, m reflections", "m*(2*N-m-1)//2 + N*I + N", "N² + NI; mN² per pass", "mhammedi2017"),
    "nnrnn": Model("eigenvalues chosen, non-normal", "N*N + N*I + N", "N² + NI; N³ per pass", "kerg2019"),
    "enrnn": Model(
        "orthogonal q×q and unit disc s×s blocks",
        "q*(q-1)//2 + q*s + s*s + N*I + N",
        "N² + NI; q³ + s³ per pass",
        "helfrich2020",
    ),
    "spectralrnn": Model("singular values in 1 ± r", "N*N + N*I + N", "N² + NI; N³ per pass", "zhang2018"),
    "svdrnn": Model("singular values in 1 ± m", "N*N + N*I + N", "N² + NI; N³ per pass", "vorontsov2017"),
    "henaff": Model("none; starts orthogonal, linear state", "N*N + N*I + N", "N² + NI", "henaff2016"),
    "goru": Model(
        "orthogonal, gated", "b + 2*N*N + 3*N*I + 3*N", "3N² + 3NI; N² log N per pass", "jing2019"
    ),
    "gatednnrnn": Model(
        "eigenvalues chosen, non-normal, gated", "3*N*N + 3*N*I + 3*N", "3N² + 3NI; N³ per pass", "kerg2019"
    ),
    "scurnn": Model(
        "unitary, scaled Cayley, complex", "N*N + 2*N*I + 2*N", "4N² + 2NI; N³ per pass", "maduranga2019"
    ),
    "urnn": Model(
        "unitary, reflections and Fourier", "8*N + 2*N*I", "4N² + 2NI, or N log N + 2NI", "arjovsky2016"
    ),
    "eurnn": Model(
        "unitary, layers of rotations", "2*r + 2*N + 2*N*I", "4N² + 2NI, or r + 2NI", "jing2017"
    ),
    "fullurnn": Model("unitary, any", "N*N + 2*N*I + N", "4N² + 2NI; N³ per pass", "wisdom2016"),
    "complexnnrnn": Model(
        "eigenvalues chosen, non-normal, complex", "2*N*N + 2*N*I + N", "4N² + 2NI; N³ per pass", "kerg2019"
    ),
    "lstm": Model("none, gated", "4*N*N + 4*N*I + 8*N", "4N² + 4NI", "hochreiter1997"),
    "gru": Model("none, gated", "3*N*N + 3*N*I + 6*N", "3N² + 3NI", "cho2014"),
    "memrnn": Model("none; reads t past states", "3*N*N + N*I + 2*N", "3N² + NI + 2tN", "bahdanau2015"),
    "memlstm": Model(
        "none, gated; reads t past states", "6*N*N + 4*N*I + 5*N", "6N² + 4NI + 2tN", "bahdanau2015"
    ),
    "relrnn": Model("none; reads k = ν + ρ states", "3*N*N + N*I + 2*N", "3N² + NI + 2kN", "kerg2020"),
    "rellstm": Model(
        "none, gated; reads k = ν + ρ states", "6*N*N + 4*N*I + 5*N", "6N² + 4NI + 2kN", "kerg2020"
    ),
    "sab": Model(
        "none, gated; reads k past states", "4*N*N + 4*N*I + 10*N", "4N² + 4NI + kN", "ke2018"
    ),
    "hdetach": Model(
        "none, gated; h detached at random", "4*N*N + 4*N*I + 8*N", "4N² + 4NI", "kanuparthi2019"
    ),
}  # fmt: skip

# in `parameters`: m reflections (default N − 1), s the short-term size, q = N − s, b angles (about ½ N log₂ N), r
# rotations (½ N per layer, by default two layers and N − 1). N complex units are 2N real numbers; the second cost is
# that of large layers, which apply their matrix as a product of sparse factors.
# V of memrnn and relrnn may be in any set; k of sab is `top`.

RELATIONAL_MODELS: dict[str, Model] = {
    "corelnet": Model(
        "similarities alone", "E + n*(T*(T+1)//2 + 1) + (n + 1)*y", "128T² + nT²/2", "kerg2022relational"
    ),
    "corelnet-t": Model(
        "similarities alone, attended to", "E + 8*T + 22456 + 257*y", "136T² + 9·10³ T", "kerg2022relational"
    ),
    "esbn": Model("keys of similar earlier objects", "E + 1710851 + 513*y", "200T² + 1.7·10⁶ T", "webb2021"),
    "transformer": Model("objects that attend to others", "E + 231552 + 257*y", "256T² + 2·10⁵ T", "vaswani2017"),
    "predinet": Model("differences of chosen objects", "E + 132096*T + 8744 + 9*y", "1.4·10⁵ T", "shanahan2020"),
    "rn": Model("all pairs of objects", "E + 329728 + 257*y", "1.3·10⁵ T²", "santoro2017"),
    "ntm": Model("objects and a memory of 10 places", "E + 2373132 + 513*y", "2.4·10⁶ T", "graves2014"),
    "mnm": Model("objects and a network as memory", "E + 346241 + 129*y", "5·10⁵ T + 10³ T²", "munkhdalai2019"),
    "relconvnet": Model(
        "relations within groups of three", "E + 10624 + 1024*(T*(T-1)*(T-2)//6) + 65*y", "2400T² + 200T³",
        "altabaa2024",
    ),
}  # fmt: skip

# E is 198,880 for images of 3 × 32 × 32 and 76,000 for 3 × 12 × 12; n is 256. Two objects are one group for relconvnet,
# with E + 10368 + 65y parameters.

REFERENCES: dict[str, tuple[str, dict[str, str]]] = {
    "elman1990": ("article", {
        "author": "Elman, Jeffrey L.", "title": "Finding Structure in Time", "journal": "Cognitive Science",
        "year": "1990", "volume": "14", "number": "2", "pages": "179--211",
    }),
    "le2015": ("article", {
        "author": "Le, Quoc V. and Jaitly, Navdeep and Hinton, Geoffrey E.",
        "title": "A Simple Way to Initialize Recurrent Networks of Rectified Linear Units",
        "journal": "arXiv preprint arXiv:1504.00941", "year": "2015",
    }),
    "henaff2016": ("inproceedings", {
        "author": "Henaff, Mikael and Szlam, Arthur and LeCun, Yann",
        "title": "Recurrent Orthogonal Networks and Long-Memory Tasks",
        "booktitle": "International Conference on Machine Learning", "year": "2016",
    }),
    "lezcano2019cheap": ("inproceedings", {
        "author": "Lezcano-Casado, Mario and Mart{\\'i}nez-Rubio, David",
        "title": "Cheap Orthogonal Constraints in Neural Networks: A Simple Parametrization of the Orthogonal and "
                 "Unitary Group",
        "booktitle": "International Conference on Machine Learning", "year": "2019",
    }),
    "helfrich2018": ("inproceedings", {
        "author": "Helfrich, Kyle and Willmott, Devin and Ye, Qiang",
        "title": "Orthogonal Recurrent Neural Networks with Scaled {C}ayley Transform",
        "booktitle": "International Conference on Machine Learning", "year": "2018",
    }),
    "helfrich2020": ("inproceedings", {
        "author": "Helfrich, Kyle and Ye, Qiang",
        "title": "Eigenvalue Normalized Recurrent Neural Networks for Short Term Memory",
        "booktitle": "AAAI Conference on Artificial Intelligence", "year": "2020",
    }),
    "mhammedi2017": ("inproceedings", {
        "author": "Mhammedi, Zakaria and Hellicar, Andrew and Rahman, Ashfaqur and Bailey, James",
        "title": "Efficient Orthogonal Parametrisation of Recurrent Neural Networks Using {H}ouseholder Reflections",
        "booktitle": "International Conference on Machine Learning", "year": "2017",
    }),
    "kerg2019": ("inproceedings", {
        "author": "Kerg, Giancarlo and Goyette, Kyle and Puelma Touzel, Maximilian and Gidel, Gauthier and Vorontsov, "
                  "Eugene and Bengio, Yoshua and Lajoie, Guillaume",
        "title": "Non-normal Recurrent Neural Network ({nnRNN}): Learning Long Time Dependencies while Improving "
                 "Expressivity with Transient Dynamics",
        "booktitle": "Advances in Neural Information Processing Systems", "year": "2019",
    }),
    "zhang2018": ("inproceedings", {
        "author": "Zhang, Jiong and Lei, Qi and Dhillon, Inderjit S.",
        "title": "Stabilizing Gradients for Deep Neural Networks via Efficient {SVD} Parameterization",
        "booktitle": "International Conference on Machine Learning", "year": "2018",
    }),
    "vorontsov2017": ("inproceedings", {
        "author": "Vorontsov, Eugene and Trabelsi, Chiheb and Kadoury, Samuel and Pal, Chris",
        "title": "On Orthogonality and Learning Recurrent Networks with Long Term Dependencies",
        "booktitle": "International Conference on Machine Learning", "year": "2017",
    }),
    "jing2019": ("article", {
        "author": "Jing, Li and Gulcehre, Caglar and Peurifoy, John and Shen, Yichen and Tegmark, Max and "
                  "Solja{\\v{c}}i{\\'c}, Marin and Bengio, Yoshua",
        "title": "Gated Orthogonal Recurrent Units: On Learning to Forget", "journal": "Neural Computation",
        "year": "2019", "volume": "31", "number": "4", "pages": "765--783",
    }),
    "arjovsky2016": ("inproceedings", {
        "author": "Arjovsky, Martin and Shah, Amar and Bengio, Yoshua",
        "title": "Unitary Evolution Recurrent Neural Networks",
        "booktitle": "International Conference on Machine Learning", "year": "2016",
    }),
    "wisdom2016": ("inproceedings", {
        "author": "Wisdom, Scott and Powers, Thomas and Hershey, John R. and Le Roux, Jonathan and Atlas, Les",
        "title": "Full-Capacity Unitary Recurrent Neural Networks",
        "booktitle": "Advances in Neural Information Processing Systems", "year": "2016",
    }),
    "jing2017": ("inproceedings", {
        "author": "Jing, Li and Shen, Yichen and Dubcek, Tena and Peurifoy, John and Skirlo, Scott and LeCun, Yann and "
                  "Tegmark, Max and Solja{\\v{c}}i{\\'c}, Marin",
        "title": "Tunable Efficient Unitary Neural Networks ({EUNN}) and their Application to {RNN}s",
        "booktitle": "International Conference on Machine Learning", "year": "2017",
    }),
    "maduranga2019": ("inproceedings", {
        "author": "Maduranga, Kehelwala D. G. and Helfrich, Kyle E. and Ye, Qiang",
        "title": "Complex Unitary Recurrent Neural Networks Using Scaled {C}ayley Transform",
        "booktitle": "AAAI Conference on Artificial Intelligence", "year": "2019",
    }),
    "hochreiter1997": ("article", {
        "author": "Hochreiter, Sepp and Schmidhuber, J{\\\"u}rgen", "title": "Long Short-Term Memory",
        "journal": "Neural Computation", "year": "1997", "volume": "9", "number": "8", "pages": "1735--1780",
    }),
    "cho2014": ("inproceedings", {
        "author": "Cho, Kyunghyun and van Merri{\\\"e}nboer, Bart and Gulcehre, Caglar and Bahdanau, Dzmitry and "
                  "Bougares, Fethi and Schwenk, Holger and Bengio, Yoshua",
        "title": "Learning Phrase Representations using {RNN} Encoder--Decoder for Statistical Machine Translation",
        "booktitle": "Conference on Empirical Methods in Natural Language Processing", "year": "2014",
    }),
    "kerg2020": ("inproceedings", {
        "author": "Kerg, Giancarlo and Kanuparthi, Bhargav and Goyal, Anirudh and Goyette, Kyle and Bengio, Yoshua and "
                  "Lajoie, Guillaume",
        "title": "Untangling Tradeoffs between Recurrence and Self-Attention in Artificial Neural Networks",
        "booktitle": "Advances in Neural Information Processing Systems", "year": "2020",
    }),
    "kerg2022": ("phdthesis", {
        "author": "Kerg, Giancarlo",
        "title": "Inductive Biases for Efficient Information Transfer in Artificial Networks",
        "school": "Universit{\\'e} de Montr{\\'e}al", "year": "2022",
    }),
    "ke2018": ("inproceedings", {
        "author": "Ke, Nan Rosemary and Goyal, Anirudh and Bilaniuk, Olexa and Binas, Jonathan and Mozer, Michael C. "
                  "and Pal, Chris and Bengio, Yoshua",
        "title": "Sparse Attentive Backtracking: Temporal Credit Assignment through Reminding",
        "booktitle": "Advances in Neural Information Processing Systems", "year": "2018",
    }),
    "kanuparthi2019": ("inproceedings", {
        "author": "Kanuparthi, Bhargav and Arpit, Devansh and Kerg, Giancarlo and Ke, Nan Rosemary and Mitliagkas, "
                  "Ioannis and Bengio, Yoshua",
        "title": "h-detach: Modifying the {LSTM} Gradient towards Better Optimization",
        "booktitle": "International Conference on Learning Representations", "year": "2019",
    }),
    "bahdanau2015": ("inproceedings", {
        "author": "Bahdanau, Dzmitry and Cho, Kyunghyun and Bengio, Yoshua",
        "title": "Neural Machine Translation by Jointly Learning to Align and Translate",
        "booktitle": "International Conference on Learning Representations", "year": "2015",
    }),
    "bakker2002": ("inproceedings", {
        "author": "Bakker, Bram", "title": "Reinforcement Learning with Long Short-Term Memory",
        "booktitle": "Advances in Neural Information Processing Systems", "volume": "14", "year": "2002",
    }),
    "schulman2016": ("inproceedings", {
        "author": "Schulman, John and Moritz, Philipp and Levine, Sergey and Jordan, Michael and Abbeel, Pieter",
        "title": "High-Dimensional Continuous Control Using Generalized Advantage Estimation",
        "booktitle": "International Conference on Learning Representations", "year": "2016",
    }),
    "schulman2017": ("article", {
        "author": "Schulman, John and Wolski, Filip and Dhariwal, Prafulla and Radford, Alec and Klimov, Oleg",
        "title": "Proximal Policy Optimization Algorithms", "journal": "arXiv preprint arXiv:1707.06347",
        "year": "2017",
    }),
    "chevalierboisvert2023": ("inproceedings", {
        "author": "Chevalier-Boisvert, Maxime and Dai, Bolun and Towers, Mark and de Lazcano, Rodrigo and Willems, "
        "Lucas and Lahlou, Salem and Pal, Suman and Castro, Pablo Samuel and Terry, Jordan",
        "title": "Minigrid & Miniworld: Modular & Customizable Reinforcement Learning Environments for Goal-Oriented "
        "Tasks",
        "booktitle": "Advances in Neural Information Processing Systems", "volume": "36", "year": "2023",
    }),
    "gu2023": ("article", {
        "author": "Gu, Albert and Dao, Tri",
        "title": "Mamba: Linear-Time Sequence Modeling with Selective State Spaces",
        "journal": "arXiv preprint arXiv:2312.00752", "year": "2023",
    }),
    "webb2020": ("inproceedings", {
        "author": "Webb, Taylor W. and Dulberg, Zachary and Frankland, Steven M. and Petrov, Alexander A. and "
                  "O'Reilly, Randall C. and Cohen, Jonathan D.",
        "title": "Learning Representations that Support Extrapolation",
        "booktitle": "International Conference on Machine Learning", "year": "2020",
    }),
    "webb2021": ("inproceedings", {
        "author": "Webb, Taylor W. and Sinha, Ishan and Cohen, Jonathan D.",
        "title": "Emergent Symbols through Binding in External Memory",
        "booktitle": "International Conference on Learning Representations", "year": "2021",
    }),
    "kerg2022relational": ("article", {
        "author": "Kerg, Giancarlo and Mittal, Sarthak and Rolnick, David and Bengio, Yoshua and Richards, Blake and "
                  "Lajoie, Guillaume",
        "title": "On Neural Architecture Inductive Biases for Relational Tasks",
        "journal": "arXiv preprint arXiv:2206.05056", "year": "2022",
    }),
    "shanahan2020": ("inproceedings", {
        "author": "Shanahan, Murray and Nikiforou, Kyriacos and Creswell, Antonia and Kaplanis, Christos and Barrett, "
                  "David and Garnelo, Marta",
        "title": "An Explicitly Relational Neural Network Architecture",
        "booktitle": "International Conference on Machine Learning", "year": "2020",
    }),
    "santoro2017": ("inproceedings", {
        "author": "Santoro, Adam and Raposo, David and Barrett, David G. T. and Malinowski, Mateusz and Pascanu, "
                  "Razvan and Battaglia, Peter and Lillicrap, Timothy",
        "title": "A Simple Neural Network Module for Relational Reasoning",
        "booktitle": "Advances in Neural Information Processing Systems", "year": "2017",
    }),
    "vaswani2017": ("inproceedings", {
        "author": "Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and Gomez, "
                  "Aidan N. and Kaiser, {\\L}ukasz and Polosukhin, Illia",
        "title": "Attention is All you Need",
        "booktitle": "Advances in Neural Information Processing Systems", "year": "2017",
    }),
    "graves2014": ("article", {
        "author": "Graves, Alex and Wayne, Greg and Danihelka, Ivo",
        "title": "Neural {T}uring Machines",
        "journal": "arXiv preprint arXiv:1410.5401", "year": "2014",
    }),
    "munkhdalai2019": ("inproceedings", {
        "author": "Munkhdalai, Tsendsuren and Sordoni, Alessandro and Wang, Tong and Trischler, Adam",
        "title": "Metalearned Neural Memory",
        "booktitle": "Advances in Neural Information Processing Systems", "year": "2019",
    }),
    "altabaa2024": ("article", {
        "author": "Altabaa, Awni and Lafferty, John",
        "title": "Learning Hierarchical Relational Representations through Relational Convolutions",
        "journal": "Transactions on Machine Learning Research", "year": "2024",
    }),
}  # fmt: skip


def bibtex(reference: str) -> str:
    """The BibTeX entry of a reference."""
    kind, fields = REFERENCES[reference]
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@{kind}{{{reference},\n{lines}\n}}"


def short(reference: str) -> str:
    """A short citation, such as "Helfrich & Ye (2020)"."""
    _, fields = REFERENCES[reference]
    names = [author.split(",")[0] for author in fields["author"].split(" and ")]
    plain = [_without_tex(name) for name in names]
    who = " & ".join(plain) if len(plain) <= 2 else f"{plain[0]} et al."
    return f"{who} ({fields['year']})"


def _without_tex(name: str) -> str:
    for tex, letter in (("{\\'i}", "í"), ('{\\"u}', "ü"), ('{\\"e}', "ë"), ("{\\v{c}}", "č"), ("{\\'c}", "ć")):
        name = name.replace(tex, letter)
    return name


def shown(parameters: str) -> str:
    """A formula in mathematical notation: N(N−1)/2 for N*(N-1)//2."""
    return parameters.replace("N*N", "N²").replace("s*s", "s²").replace("//", "/").replace("*", "").replace("-", "−")
