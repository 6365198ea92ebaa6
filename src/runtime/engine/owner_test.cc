#include "runtime/engine/owner.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace caisson::runtime::engine {

namespace {

TEST(Owner, IsReadBackFromItsText) {
  const Result<Owner> self = ThisProcess();
  ASSERT_TRUE(self);
  const std::optional<Owner> again = ParseOwner(self->ToText());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->ToText(), self->ToText());
  EXPECT_EQ(FateOf(*again, *self), Fate::kAlive);
}

TEST(Owner, ALaterProcessWithTheNumberIsAnother) {
  Result<Owner> self = ThisProcess();
  ASSERT_TRUE(self);
  Owner earlier = *self;
  --earlier.started;
  EXPECT_EQ(FateOf(earlier, *self), Fate::kDead);
}

TEST(Owner, AnEndedProcessIsDead) {
  Result<Owner> self = ThisProcess();
  ASSERT_TRUE(self);
  Owner child = *self;
  child.pid = ::fork();
  if (child.pid == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(static_cast<pid_t>(child.pid), nullptr, 0), child.pid);
  EXPECT_EQ(FateOf(child, *self), Fate::kDead);
}

TEST(Owner, OfAnotherBootOrNamespaceNothingIsKnown) {
  const Result<Owner> self = ThisProcess();
  ASSERT_TRUE(self);
  Owner other = *self;
  other.boot = "another";
  EXPECT_EQ(FateOf(other, *self), Fate::kUnknown);
  other = *self;
  other.pid_namespace = "pid:[1]";
  EXPECT_EQ(FateOf(other, *self), Fate::kUnknown);
}

TEST(Owner, RefusesOtherTexts) {
  for (const char* text :
       {"", "/", "a/b/1", "a/b/1/2/3", "a/b/1/x", "a/b/-1/2", "a//1/2", "a/b/1/", "a/b/99999999999999999999/1"})
    EXPECT_FALSE(ParseOwner(text)) << text;
}

}  // namespace

}  // namespace caisson::runtime::engine
