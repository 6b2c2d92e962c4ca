"""From a question to memories, in order:

1. `plan.make_plan`: the question's terms and vector
2. `search.candidates`: words, vectors and neighbours within scope and filters, fused
3. `hits.hydrate`: whole records, the scope checked once more
4. `pack.pack`: hits into a block of text within a budget of tokens
"""
