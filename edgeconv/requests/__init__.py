"""The requests: what each verb is called with, one frozen struct per verb.

Command lines, tables of edgeconv.toml, their JSON Schema, Python's keywords and the keys of results
are all derived from the fields.

option      what a field declares, and the leaves that the options are
texts       the kinds of texts: paths and SOURCEs as a configuration has them, names, programs
request     what all requests do; from raw values and from Python's arguments
table       the verbs by name: the request and the function of each, callable from Python
in_memory   calls in Python: models and samples in memory, as files, and signatures
shared      the options that several verbs have
"""
