#include "runtime/kubernetes/pod_state.h"

#include <gtest/gtest.h>

#include "runtime/kubernetes/attach.h"

namespace caisson::runtime::kubernetes {
namespace {

using nlohmann::json;

json Pod(json status, json spec = json::object()) {
  return {{"metadata", {{"name", "p"}, {"resourceVersion", "7"}}},
          {"spec", std::move(spec)},
          {"status", std::move(status)}};
}

json State(const char* kind, json detail) {
  return {{"phase", "Running"},
          {"containerStatuses", {{{"name", "workload"}, {"state", {{kind, std::move(detail)}}}}}}};
}

PodState Read(json status, json spec = json::object()) {
  Result<PodState> pod = ReadPod(Pod(std::move(status), std::move(spec)));
  EXPECT_TRUE(pod);
  return pod ? *std::move(pod) : PodState();
}

TEST(PodStateTest, TheReasonCountsAndNotTheExitCode) {
  const PodState pod = Read(State("terminated", {{"reason", "OOMKilled"}, {"exitCode", 0}}));
  const Result<witnessed::OuterEnd> end = JudgeEnd(pod);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->memory_limit);
  ASSERT_EQ(end->evidence.size(), 2U);
}

TEST(PodStateTest, AnEndByTheWorkloadIsNoError) {
  const Result<witnessed::OuterEnd> end = JudgeEnd(Read(State("terminated", {{"reason", "Error"}, {"exitCode", 137}})));
  ASSERT_TRUE(end);
  EXPECT_FALSE(end->memory_limit);
}

TEST(PodStateTest, EndsByTheClusterAreErrorsThatNameTheCause) {
  for (const char* reason : {"Evicted", "DeadlineExceeded", "NodeLost", "Preempting", "Shutdown"}) {
    json status = State("terminated", {{"reason", "Error"}, {"exitCode", 137}});
    status["phase"] = "Failed";
    status["reason"] = reason;
    const Result<witnessed::OuterEnd> end = JudgeEnd(Read(status, {{"nodeName", "n1"}}));
    ASSERT_FALSE(end) << reason;
    EXPECT_NE(end.error().message.find(reason), std::string::npos);
    EXPECT_NE(end.error().message.find("n1"), std::string::npos);
  }
  json disrupted = State("running", json::object());
  disrupted["conditions"] = {{{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "EvictionByEvictionAPI"}}};
  EXPECT_FALSE(JudgeEnd(Read(disrupted)));
  PodState deleted = Read(State("running", json::object()));
  deleted.deleted = true;
  EXPECT_FALSE(JudgeEnd(deleted));
  // The stream is gone and the node says nothing.
  EXPECT_FALSE(JudgeEnd(Read(State("running", json::object()))));
}

TEST(PodStateTest, HopelessStartsAreToldFromSlowOnes) {
  EXPECT_FALSE(FindStartFailure(Read(State("waiting", {{"reason", "ContainerCreating"}}))));
  EXPECT_FALSE(FindStartFailure(Read({{"phase", "Pending"}})));
  EXPECT_FALSE(FindStartFailure(Read(State("running", json::object()))));
  for (const char* reason : {"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "CreateContainerConfigError"}) {
    const std::optional<Error> failure = FindStartFailure(Read(State("waiting", {{"reason", reason}})));
    ASSERT_TRUE(failure) << reason;
    EXPECT_NE(failure->message.find("fix: "), std::string::npos);
  }
  const std::optional<Error> failure =
      FindStartFailure(Read(State("terminated", {{"reason", "StartError"}, {"message", "no such file"}})));
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->message.find("no such file"), std::string::npos);
}

TEST(PodStateTest, WatchEvents) {
  const auto line = [](const char* type, const json& object) {
    return json({{"type", type}, {"object", object}}).dump();
  };
  const Result<WatchEvent> added = ReadWatchLine(line("ADDED", Pod({{"phase", "Pending"}})));
  ASSERT_TRUE(added);
  EXPECT_EQ(added->resource_version, "7");
  const Result<WatchEvent> deleted = ReadWatchLine(line("DELETED", Pod({})));
  ASSERT_TRUE(deleted);
  EXPECT_TRUE(deleted->pod.deleted);
  const Result<WatchEvent> bookmark = ReadWatchLine(line("BOOKMARK", {{"metadata", {{"resourceVersion", "9"}}}}));
  ASSERT_TRUE(bookmark);
  EXPECT_EQ(bookmark->kind, WatchEvent::Kind::kBookmark);
  const Result<WatchEvent> expired = ReadWatchLine(line("ERROR", {{"code", 410}}));
  ASSERT_TRUE(expired);
  EXPECT_EQ(expired->kind, WatchEvent::Kind::kExpired);
  EXPECT_FALSE(ReadWatchLine(line("ERROR", {{"code", 500}, {"message", "broken"}})));
  EXPECT_FALSE(ReadWatchLine(line("ADDED", {{"metadata", "no object"}})));
  EXPECT_FALSE(ReadWatchLine("[]"));
  const std::string deep = line("ADDED", Pod({}, {{"deep", nullptr}}));
  const std::string many(1'000'000, '[');
  EXPECT_FALSE(ReadWatchLine(deep.substr(0, deep.find("null")) + many));
  const std::string closed = many + std::string(many.size(), ']');
  const Result<WatchEvent> nested =
      ReadWatchLine(deep.substr(0, deep.find("null")) + closed + deep.substr(deep.find("null") + 4));
  ASSERT_TRUE(nested);
  EXPECT_LT(nested->pod.spec.dump().size(), 200U);
  EXPECT_FALSE(ReadWatchLine("{"));
}

TEST(PodStateTest, LinesArriveInPieces) {
  WatchLines lines;
  lines.Append("one");
  ASSERT_TRUE(lines.Next());
  EXPECT_FALSE(*lines.Next());
  lines.Append("\ntwo\nthr");
  EXPECT_EQ(**lines.Next(), "one");
  EXPECT_EQ(**lines.Next(), "two");
  EXPECT_FALSE(*lines.Next());
  lines.Append(std::string(kMaxWatchLineBytes, 'x'));
  EXPECT_FALSE(lines.Next());
}

TEST(PodStateTest, WhatAClusterMayChange) {
  const json wanted = {
      {"hostNetwork", false},
      {"env", json::array()},
      {"containers", {{{"name", "workload"}, {"limits", {{"memory", "134217728"}, {"cpu", "2000m"}}}}}}};
  const json same = {
      {"schedulerName", "default-scheduler"},
      {"containers", {{{"name", "workload"}, {"limits", {{"memory", "128Mi"}, {"cpu", "2"}}}, {"x", 1}}}}};
  EXPECT_EQ(FindDifference(same, wanted), "");
  json host = same;
  host["hostNetwork"] = true;
  EXPECT_EQ(FindDifference(host, wanted), "hostNetwork (set)");
  json sidecar = same;
  sidecar["containers"].push_back({{"name", "proxy"}});
  EXPECT_NE(FindDifference(sidecar, wanted), "");
  json larger = same;
  larger["containers"][0]["limits"]["memory"] = "129Mi";
  EXPECT_EQ(FindDifference(larger, wanted), "containers.0.limits.memory (is \"129Mi\")");
  json without = same;
  without["containers"][0].erase("limits");
  EXPECT_NE(FindDifference(without, wanted), "");
  EXPECT_EQ(FindDifference(json::object(), {{"hostUsers", false}}), "hostUsers (is absent)");
  json variable = same;
  variable["env"] = {{{"name", "X"}}};
  EXPECT_NE(FindDifference(variable, wanted), "");
}

TEST(AttachTest, MessagesHaveAChannel) {
  EXPECT_EQ(ReadAttachMessage(std::string("\1text"))->bytes, "text");
  EXPECT_EQ(ReadAttachMessage(std::string("\3{}"))->channel, AttachChannel::kStatus);
  EXPECT_TRUE(ReadAttachMessage(""));
  EXPECT_FALSE(ReadAttachMessage("\x7f"));
}

}  // namespace
}  // namespace caisson::runtime::kubernetes
