"""A shop that shows each visitor one of six offers and learns which: all that a shop has to write.

    feducb agent init --recipe recipe.json --epsilon 8 --decisions 12000 --season 2m --window 1s > keys.txt
    feducb agent serve &
    python shop.py http://127.0.0.1:8750 $(awk '/application/ {print $2}' keys.txt) 12000

`recipe.json` says what is public about visitors and offers. `visitors.py` stands for the shop's own visitors.
"""

import sys

import visitors

from feducb.service.client import Client

sold, (url, key, count) = 0, sys.argv[1:4]
with Client(url, key=key) as agent:
    for number, visitor in enumerate(visitors.arrive(int(count), per_second=100), start=1):
        decision = agent.decide(context=visitor)
        bought = visitors.buys(visitor, decision.action)
        agent.reward(decision.id, float(bought))
        sold += bought
        if number % 500 == 0:
            print(f"{number} visitors; of the last 500, {sold} bought. Shown: {decision}")
            sold = 0
