"""`forebay bench`: this feed beside its peers, on this machine, in one table.

A case is one piece of work; its entries are the ways to do it. Every entry runs in a process of its own, because
frameworks clash, and all of a case's processes take turns, round after round, so that whatever else the machine does
falls on all of them alike. `cases` says what is measured (`gpu_cases`: where a GPU is fed), `contenders` how each peer
does it, `meters` how the number is taken, `consumers` who receives batches on a device, `run` takes the turns,
`results` keeps them, `table` draws them.
"""
