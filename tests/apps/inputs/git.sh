# git: 200 commits, a repack by two threads in children, a check, a clone.
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
git init -q repository
cd repository || exit
for i in $(seq 60); do seq $((i * 300)) >"file$((i % 7))"; git add . && git commit -q -m "change $i"; done
git -c pack.threads=2 repack -a -d -f -q
git fsck --no-progress
git clone -q . ../clone
git -C ../clone log --format=%H | cksum
