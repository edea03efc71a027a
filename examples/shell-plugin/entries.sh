#!/bin/sh
# Entries in plain shell, with jq: one JSON object a line on two descriptors.
set -u
number=0

say() { printf '%s\n' "$1" >&"$PERDURE_WRITE_FD"; }
hear() { IFS= read -r line <&"$PERDURE_READ_FD" || exit 0; } # at the end the server is gone
field() { printf '%s\n' "$line" | jq -r "$1"; }
text() { jq -Rn --arg text "$1" '$text'; }

# Say something that is answered, and wait for the answer (in $line).
request() {
    number=$((number + 1))
    say "{\"say\": \"$1\", \"id\": $number, $2}"
    answer
}

# Wait for an answer, or for a call; a cancel request may come first.
answer() {
    while hear; do
        [ "$(field '.re // .call // empty')" = "$number" ] && return
    done
}

# step NAME OPTIONS BODY: do a step as often as the server wants it done.
step() {
    request step "\"name\": $(text "$1")$2"
    while [ "$(field '.call // empty')" = "$number" ]; do
        if value=$("$3"); then
            say "{\"say\": \"did\", \"id\": $number, \"value\": $value}"
        else
            say "{\"say\": \"did\", \"id\": $number, \"error\": {\"message\": \"not yet\"}}"
        fi
        answer
    done
}

# file PATH OPTIONS: export a file piece by piece, as the server calls for them; an empty one is the end.
file() {
    from=1 piece=196608
    request bytes "$2"
    while [ "$(field '.call // empty')" = "$number" ]; do
        say "{\"say\": \"piece\", \"id\": $number, \"data\": \"$(tail -c "+$from" "$1" | head -c "$piece" | base64 | tr -d '\n')\"}"
        from=$((from + piece))
        answer
    done
}

returns() { say "{\"say\": \"return\", \"value\": $1}"; }
square() { echo $((i * i)); }
flaky() { echo x >>"$tries"; [ "$(wc -l <"$tries")" -gt 2 ] && echo '"good"'; }

hear
case $(field .entry_id) in
greet) returns "$(text "hello $(field '.args.name // "you"')")" ;;
report)
    say '{"say": "status", "stage": "working", "message": "the first part"}'
    say '{"say": "progress", "progress": 0.5, "message": "half"}'
    say '{"say": "log", "text": "a line"}'
    echo printed
    request export '"type": "text", "content": "a text", "description": "described", "key": "text"'
    item=$(field .value)
    request export '"type": "json", "content": {"a": [1, null]}'
    say "{\"say\": \"result\", \"items\": [$(text "$item")]}"
    returns null
    ;;
steps)
    squares= i=0
    n=$(field '.args.n // 3')
    while [ "$i" -lt "$n" ]; do
        step "square-$i" "" square
        squares="$squares${squares:+,}$(field .value)"
        i=$((i + 1))
    done
    returns "[$squares]"
    ;;
flaky)
    tries=$(mktemp)
    step flaky ', "retry": {"tries": 3, "delay": 0.01}' flaky
    rm "$tries"
    returns "$(field '.value | tojson')"
    ;;
fail)
    code=$(text "$(field '.args.code // "MINE"')")
    say "{\"say\": \"raise\", \"error\": {\"code\": $code, \"message\": \"as you wish\", \"details\": {\"a\": 1}, \"retriable\": true}}"
    ;;
file)
    made=$(mktemp)
    yes 0123456789abcde | head -c "$(field '.args.size // 300000')" >"$made"
    file "$made" '"description": "a file", "mime": "text/plain", "key": "file"'
    rm "$made"
    say "{\"say\": \"result\", \"items\": [$(text "$(field .value)")]}"
    returns null
    ;;
question)
    request ask '"question": {"text": "which?"}'
    returns "$(field '.value | tojson')"
    ;;
wait)
    say '{"say": "status", "stage": "waiting"}'
    hear # nothing else can come
    say '{"say": "raise", "cancelled": true}'
    ;;
esac
