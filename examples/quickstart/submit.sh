# Submit a task to the queue `default` of the Orbit that `make up` started.
field() { python3 -c "import json; print(json.load(open('.orbit/credentials.json'))['$1'])"; }
curl -sS "${ORBIT_URL:-http://127.0.0.1:8080}/v1/tasks" \
  -H "Authorization: Bearer $(field token)" \
  -H "Content-Type: application/json" \
  -H "Idempotency-Key: greet-world-1" \
  -d '{"queue_id": "'$(field queue_id)'", "handler": "greet", "handler_version": "v1",
       "payload_version": "v1", "payload": {"name": "World"}}'
