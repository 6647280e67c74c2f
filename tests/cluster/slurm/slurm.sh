#!/usr/bin/env bash
# A Slurm of two nodes on this machine, which talk over the loopback interface: slurm.sh start FOLDER; slurm.sh stop FOLDER.
# Root is needed. Debian's packages are installed where they are missing. Everything is ended by the ids of its processes.
set -euo pipefail
what=$1 folder=$(realpath -m "$2")
export SLURM_CONF="$folder/slurm.conf"
socket="$folder/munge/munge.socket"

start() {
  if ! command -v slurmctld >/dev/null || ! command -v munged >/dev/null; then
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq slurm-wlm munge) >/dev/null
  fi
  host=$(hostname -s) port=${PORT:-16817}
  mkdir -p "$folder"/{state,spool/n1,spool/n2,log,munge}
  chmod 755 "$folder"
  chown munge: "$folder/munge"
  chmod 755 "$folder/munge"
  (umask 077 && head -c 1024 /dev/urandom >"$folder/munge/munge.key")
  chown munge: "$folder/munge/munge.key"
  runuser -u munge -- munged --socket="$socket" --key-file="$folder/munge/munge.key" \
    --pid-file="$folder/munge/munged.pid" --log-file="$folder/munge/munged.log" --seed-file="$folder/munge/munged.seed"
  cat >"$SLURM_CONF" <<C
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$socket
CryptoType=crypto/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=1 RealMemory=4000
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=1 RealMemory=4000
PartitionName=test Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
C
  slurmctld -f "$SLURM_CONF"
  for node in n1 n2; do slurmd -f "$SLURM_CONF" -N "$node"; done
  for _ in $(seq 60); do
    [ "$(sinfo -h -o %D -t idle 2>/dev/null)" = 2 ] && return
    sleep 0.5
  done
  echo "the nodes did not come up; see $folder/log" >&2
  return 1
}

stop() {
  scancel --partition test >/dev/null 2>&1 || true
  for file in "$folder"/slurmd-n1.pid "$folder"/slurmd-n2.pid "$folder"/slurmctld.pid "$folder"/munge/munged.pid; do
    [ -s "$file" ] || continue
    id=$(cat "$file")
    kill "$id" 2>/dev/null || continue
    for _ in $(seq 100); do kill -0 "$id" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$id" 2>/dev/null || true
  done
}

"$what"
