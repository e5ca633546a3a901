"""Short stories, made by a small grammar: what the model of `fixtures/story` learns.

Each has a hero, a friend and a thing that is lost and found, and speaks of the same ones to its end: a model that
writes such stories must look back. The words are this project's own.
"""

import random

HEROES = {"Mira": "fox", "Otto": "owl", "Pip": "mouse", "Luna": "cat", "Bruno": "bear", "Tilda": "hare", "Nils": "goose", "Emma": "mole"}
COLOURS = ("red", "blue", "green", "golden", "white")
THINGS = ("key", "ball", "lamp", "boat", "bell", "kite", "hat")
PLACES = ("under the bridge", "behind the mill", "in the old barn", "near the pond", "on the hill", "in the tall grass")
WEATHER = ("It was a sunny morning.", "It was a cold evening.", "The rain had just stopped.", "Snow lay on the roofs.", "The wind was very strong.")
WISHES = ("wanted to play", "wanted to go home", "wanted to see the sea", "was looking for a friend", "could not sleep")
FEELINGS = ("happy", "proud", "tired", "glad")
MEALS = ("warm bread", "sweet apples", "hot soup", "honey cake")


def story(rng: random.Random) -> str:
    hero, friend = rng.sample(sorted(HEROES), 2)
    colour, thing, place = rng.choice(COLOURS), rng.choice(THINGS), rng.choice(PLACES)
    it = f"the {colour} {thing}"
    lines = [f"{hero} the {HEROES[hero]} {rng.choice(WISHES)}.", rng.choice(WEATHER)]
    if rng.random() < 0.5:
        lines.reverse()
    lines += [
        rng.choice((
            f"{hero} found a {colour} {thing} {place}.",
            f"There was a {colour} {thing} {place}, and {hero} took it.",
            f"{place[0].upper()}{place[1:]} lay a {colour} {thing}.",
        )),
        rng.choice((
            f"\"Is this your {thing}?\" {hero} asked {friend} the {HEROES[friend]}.",
            f"{hero} showed {it} to {friend} the {HEROES[friend]}.",
            f"Then {friend} the {HEROES[friend]} came and looked at {it}.",
        )),
        rng.choice((
            f"\"Yes,\" said {friend}, \"I lost it {place}.\"",
            f"\"No,\" said {friend}, \"but I know whose {thing} it is.\"",
            f"\"What a fine {thing}!\" said {friend}.",
        )),
        rng.choice((
            f"So they went home and ate {rng.choice(MEALS)}.",
            f"So {hero} and {friend} played with {it} until dark.",
            f"So {hero} gave {it} to {friend}.",
        )),
        rng.choice((
            f"{hero} was {rng.choice(FEELINGS)}.",
            f"{friend} was {rng.choice(FEELINGS)}, and {hero} was {rng.choice(FEELINGS)} too.",
            f"They were {rng.choice(FEELINGS)} and stayed friends.",
        )),
    ]  # fmt: skip
    return " ".join(lines)
