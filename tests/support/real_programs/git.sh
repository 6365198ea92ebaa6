# Everyday git on a repository of its own. With fixed dates and identities every object id is the same wherever it runs.
set -eu
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org
export GIT_AUTHOR_DATE='2001-02-03T04:05:06Z' GIT_COMMITTER_DATE='2001-02-03T04:05:06Z'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_EDITOR=true LC_ALL=C
mkdir place; cd place
git init -q -b main repo; cd repo

# a history with two sides and one conflict
seq 1 100 >numbers; printf 'x\n' >plain; mkdir -p d/e; printf '#!/bin/sh\n' >d/e/run; chmod +x d/e/run; ln -s ../plain d/link
git add .; git commit -qm first; git tag -a -m 'a tag' v1
git branch side
sed -i s/^50$/fifty/ numbers; git commit -qam 'main changes 50'
git checkout -q side; sed -i s/^50$/FIFTY/ numbers; git mv plain moved; git commit -qam 'side changes 50'
git checkout -q -b topic v1; printf 'topic\n' >topic; git add topic; git commit -qm topic; printf 'more\n' >>topic; git commit -qam 'topic again'
git checkout -q main
if git merge side >../merge.out 2>&1; then exit 9; fi  # it must conflict
grep -c '<<<<<<<' numbers; git status --short; git diff --name-only --diff-filter=U
seq 1 100 | sed s/^50$/both/ >numbers; git add numbers; git commit -qm 'merged'
git checkout -q topic; git rebase -q main; git checkout -q main; git merge -q --ff-only topic
printf 'wip\n' >>topic; printf 'u\n' >untracked; git stash push -q -u; git status --short; git stash pop -q; git diff; rm untracked; git checkout -q topic
git worktree add -q ../tree v1; ls ../tree; git worktree remove ../tree

# what people look at
git log --graph --format='%H %T %an %ad %s' --all
git diff v1 HEAD --stat; git blame -s topic; git grep -n topic
git archive HEAD | sha256sum; git bundle create -q ../all.bundle --all; git bundle verify -q ../all.bundle

# copies of it, and cleaning up
cd ..; git clone -q repo copy; git clone -q --no-local --depth 1 "file://$PWD/repo" shallow; git clone -q --bare repo bare.git
git -C copy push -q ../bare.git HEAD:refs/heads/pushed
git -C repo gc -q --prune=now; git -C repo fsck --full --strict
for r in repo copy shallow bare.git; do echo $r; git -C $r rev-parse HEAD; git -C $r cat-file --batch-all-objects --batch-check | sort; git -C $r for-each-ref; done
