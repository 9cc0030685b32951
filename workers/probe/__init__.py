"""What Lorry runs inside vLLM's worker process: timed loads, CPU operators, the orphan watch.

`extension.ProbeExtension` is the only entry; `private_names` lists every vLLM internal that the package touches.
"""
