#!/bin/sh
# A decision, an order and a refund with curl:  sh examples/client.sh http://127.0.0.1:8080 checkout
# Where the service wants a token it is in the environment variable ZIB_TOKEN.
set -eu
service="$1/v1/$2"

# All of it may be repeated, because keys and ids say what is meant; --retry does so when nobody
# answers, or the answer is 408, 429, 500, 502, 503 or 504.
answer="$(mktemp)" # a file keeps the last answer only, not those that were tried again
trap 'rm -f "$answer"' EXIT
ask() { # route, body
    curl --silent --show-error --fail-with-body --max-time 5 --output "$answer" \
        --retry 8 --retry-connrefused --retry-max-time 60 \
        --header "Content-Type: application/json" \
        ${ZIB_TOKEN:+--header "Authorization: Bearer $ZIB_TOKEN"} \
        --data "$2" "$service/$1" || { cat "$answer" >&2 && exit 1; }
    cat "$answer" && echo
}

name="$(date +%s)-$$"
decision="$(ask decide "{\"key\": \"request-$name\", \"unit\": \"customer-12\"}")"
echo "$decision"
id="$(echo "$decision" | sed 's/.*"id": *"\([^"]*\)".*/\1/')"

ask event "{\"id\": \"order-$name\", \"decision_id\": \"$id\", \"value\": 29.90}"
ask event "{\"id\": \"order-$name\", \"decision_id\": \"$id\", \"value\": 29.90}" # a duplicate
ask revise "{\"id\": \"refund-$name\", \"decision_id\": \"$id\", \"value\": 0}"
