#!/usr/bin/env bash
# Grant every principal of deploy/topics.yaml what it needs, and no more. Running it again changes nothing.
#
#   BOOTSTRAP=broker:9093 COMMAND_CONFIG=admin.properties deploy/acls.sh
#
# BOOTSTRAP       a broker                                          [127.0.0.1:9092]
# COMMAND_CONFIG  how to log in, a client's properties file         [none]
# PREFIX          as STREAMMEM_KAFKA__PREFIX                        [none]
# PRINCIPALS      before the name of each principal                 [streammem-: User:streammem-ingest]
# KAFKA_ACLS      the command                                       [kafka-acls.sh]; KAFKA_ACLS=echo shows what would be done
#
# The brokers need an authorizer (authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer), listeners
# that authenticate, and allow.everyone.if.no.acl.found=false, else the topics stay open. In the answers and the log are
# private channels; a question carries its asker as a claim. Hence: only `asker` writes questions, only `query` writes
# answers, only `ingest` writes the log.
set -euo pipefail

bootstrap=${BOOTSTRAP:-127.0.0.1:9092}
prefix=${PREFIX:-}
principals=${PRINCIPALS-streammem-}
kafka_acls=${KAFKA_ACLS:-kafka-acls.sh}
login=()
if [[ -n ${COMMAND_CONFIG:-} ]]; then login=(--command-config "$COMMAND_CONFIG"); fi

raw_slack=chat.raw.slack.v1
raw_teams=chat.raw.teams.v1
messages=chat.messages.v1
directory=chat.directory.v1
log=memory.log.v1
dead_letter=memory.dead-letter.v1
queries=memory.queries.v1
answers=memory.answers.v1

# grant PRINCIPAL "OPERATION..." ARGUMENT...: the arguments name what the operations may be done to.
grant() {
  local principal=$1 operations=() operation
  for operation in $2; do operations+=(--operation "$operation"); done
  shift 2
  "$kafka_acls" --bootstrap-server "$bootstrap" ${login[@]+"${login[@]}"} --add \
    --allow-principal "User:$principals$principal" "${operations[@]}" "$@"
}

# topics PRINCIPAL "OPERATION..." TOPIC...  (reading and writing a topic include seeing it)
topics() {
  local names=() topic
  for topic in "${@:3}"; do names+=(--topic "$prefix$topic"); done
  grant "$1" "$2" "${names[@]}"
}

# group PRINCIPAL OPERATION NAME [ARGUMENT...]: a consumer group, or with --resource-pattern-type prefixed all that begin so.
group() {
  grant "$1" "$2" --group "$prefix$3" "${@:4}"
}

topics receive Write "$raw_slack" "$raw_teams"
topics bridge Write "$raw_slack" "$raw_teams"
topics exporter Write "$messages" "$directory"

# Every role that reads may refuse a record.
topics connect Read "$raw_slack" "$raw_teams"
topics connect Write "$messages" "$directory" "$dead_letter"
group connect Read streammem-connect

topics ingest Read "$messages" "$directory"
topics ingest Write "$log" "$dead_letter"
group ingest Read streammem-ingest

topics structure Read "$log"
topics structure Write "$dead_letter"
group structure Read streammem-structure

topics index Read "$log"
topics index Write "$dead_letter"
group index Read streammem-index

topics summarize Write "$dead_letter"
group summarize Read streammem-summarize

topics query Read "$queries"
topics query Write "$answers" "$dead_letter"
group query Read streammem-query

topics asker Write "$queries"
topics asker Read "$answers"

topics operator "Create Describe DescribeConfigs Alter AlterConfigs" \
  "$raw_slack" "$raw_teams" "$messages" "$directory" "$log" "$dead_letter" "$queries" "$answers"
topics operator Read "$log" "$dead_letter" "$raw_slack" "$raw_teams" "$messages" "$directory"
topics operator Write "$raw_slack" "$raw_teams" "$messages" "$directory" "$dead_letter"
group operator Describe streammem- --resource-pattern-type prefixed
