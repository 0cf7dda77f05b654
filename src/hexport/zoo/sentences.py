"""English sentences, and the WordPiece tokens that BERT models read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hexport.zoo.samples import Feed, Request, Split

# Even lines calibrate, odd lines test.
SENTENCES = """\
The train to the coast leaves from platform nine at a quarter past seven.
How do I reset the password of my account?
A small dog chased three pigeons across the empty square.
Interest rates were left unchanged for the fourth month in a row.
She folded the letter twice and put it back into the drawer.
The recipe needs two eggs, 250 grams of flour and a pinch of salt.
Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.
Please restart the router and wait until the green light is steady.
Our flight was delayed by fog, so we missed the connection in Madrid.
The museum opens at ten, but the garden is open all day.
He has played the cello since he was six years old.
A neural network learns its weights from examples.
The bridge was closed after engineers found cracks in two of its pillars.
Can you recommend a quiet restaurant near the station?
Heavy snow is expected in the mountains from Thursday evening.
The committee rejected the proposal by eleven votes to four.
Turn left after the church, then follow the river for two miles.
The patient shows no sign of fever this morning.
Copper conducts electricity better than iron does.
I would like to return these shoes because they are too tight.
The orchestra tuned its instruments while the audience sat down.
Volcanic ash kept the island's airport shut for five days.
Keep the medicine in a cool and dry place, out of reach of children.
What time does the library close on Saturdays?
The company sold more electric cars than it could build.
Bees visit hundreds of flowers to make a spoonful of honey.
The witness could not remember the colour of the van.
Sort the list first, and the search becomes much faster.
Grandmother kept the photographs in an old biscuit tin.
The referee showed a red card in the last minute of the match.
Glaciers in the region have lost a third of their ice since 1980.
My phone does not charge any more, not even with a new cable.
The poem is about a sailor who never learned to swim.
Add the onions when the butter begins to foam.
The satellite sends one picture of the whole Earth every ten minutes.
Rents in the city centre have doubled within a decade.
He apologised for the noise and closed the window.
The treaty was signed in 1648 after thirty years of war.
Store the backup on a disk that is not always connected.
The children built a raft out of barrels and rope.
""".splitlines()


def split_sentences(split: Split) -> list[str]:
    return SENTENCES[0 if split == "calib" else 1 :: 2]


def sentences(ask: Request) -> list[Feed]:
    """Each sentence once, after that random pairs; padded, with the padding masked."""
    import numpy as np

    (vocabulary,) = ask.files("vocabulary")
    ids = {token: i for i, token in enumerate(vocabulary.read_text(encoding="utf-8").splitlines())}
    texts = split_sentences(ask.split)
    length = ask.shape()[1]
    feeds = []
    for i in range(ask.count):
        text = texts[i] if i < len(texts) else " ".join(ask.rng.choice(texts, 2, replace=False))
        tokens = ["[CLS]", *wordpieces(text, ids)[: length - 2], "[SEP]"]
        row, mask = np.zeros((1, length), np.int64), np.zeros((1, length), np.int64)
        row[0, : len(tokens)] = [ids[token] for token in tokens]
        mask[0, : len(tokens)] = 1
        feeds.append(ask.named(row, mask, np.zeros((1, length), np.int64)))
    return feeds


def wordpieces(text: str, vocabulary: dict[str, int]) -> list[str]:
    """Lower-case words and punctuation marks, each cut into the longest pieces the vocabulary has."""
    return [piece for word in re.findall(r"\w+|[^\w\s]", text.lower()) for piece in _pieces(word, vocabulary)]


def _pieces(word: str, vocabulary: dict[str, int]) -> list[str]:
    pieces = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            if prefix + word[start:end] in vocabulary:
                pieces.append(prefix + word[start:end])
                start = end
                break
        else:
            return ["[UNK]"]
    return pieces
