"""What each verb is asked: one frozen noun a verb, of whose fields all else is made.

A command line, a table of edgeconv.toml, its JSON Schema, Python's keywords and the keys of
results have no list of options of their own.

option      what a field says of itself, and the leaves that the options are
texts       what the texts of options are; places: paths and SOURCEs as a configuration has them
request     what all requests do; from texts and from Python's arguments
verbs       the verbs by name: the request and the function of each
shared      the options that several verbs take
"""
