"""A trace for Perfetto and chrome://tracing from the lines of `pinion report --events`: a process a rank in order of rank, its leases
and registrations as spans, late ones marked, bytes over time as counters. Standard library alone."""
import io
import json
import sys

# What an event's own place in the trace has; the rest are arguments.
_PLACED = {"process", "thread", "kind", "name", "begin_us", "end_us", "late"}


def _process(process):
    number = process["process"]

    def named(what, **args):
        return {"ph": "M", "name": what, "pid": number, "args": args}

    yield named("process_name", name=process["name"])
    yield named("process_sort_index", sort_index=number)
    if process["events_missing"]:
        yield named("process_labels", labels="%d events are missing" % process["events_missing"])
    for name, levels in process["counters"].items():
        for time, level in levels:
            yield {"ph": "C", "name": name, "pid": number, "ts": time, "args": {"bytes": level}}


def _event(event, number):
    placed = {"pid": event["process"], "tid": event["thread"], "ts": event["begin_us"], "name": event["name"], "cat": event["kind"]}
    if event.get("late"):
        yield dict(placed, ph="i", s="t", name="late", cat="late", args={"call": event["name"], "wait_us": event["wait_us"]})
    placed["args"] = {key: value for key, value in event.items() if key not in _PLACED}
    if "end_us" not in event:
        yield dict(placed, ph="i", s="t")
    elif event["kind"] == "registration":
        yield dict(placed, ph="X", dur=event["end_us"] - event["begin_us"])
    else:  # spans of nonblocking operations overlap on one thread, so they stand side by side
        placed["id"] = "%d.%d" % (event["process"], number)
        yield dict(placed, ph="b")
        del placed["args"]
        yield dict(placed, ph="e", ts=event["end_us"])


def trace_events(lines, missing):
    """The objects of a trace. `missing` gets the number of events that each process's log lacks."""
    threads, helpers, decode = {}, {}, json.JSONDecoder().decode
    for number, line in enumerate(lines):
        item = decode(line)
        if "counters" in item:
            missing.append(item["events_missing"])
            helpers[item["process"]] = item["helper_thread"]
            yield from _process(item)
        else:
            threads[item["process"], item["thread"]] = "thread %d" % item["thread"]
            yield from _event(item, number)
    threads.update({place: "helper" for place in helpers.items()})
    for (process, thread), name in threads.items():
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}


def main():
    missing, separator, encode = [], '{"traceEvents":[\n', json.JSONEncoder(separators=(",", ":")).encode
    for event in trace_events(io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8"), missing):
        sys.stdout.write(separator + encode(event))
        separator = ",\n"
    print('\n],"otherData":{"events missing":%d}}' % sum(missing))
    return 0
