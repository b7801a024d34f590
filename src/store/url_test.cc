#include "store/url.h"

#include "store/test_tools.h"

namespace starling {
namespace {

TEST(Url, PlainPathsAndUrlsAreTakenApart) {
  const auto plain = parse_url("data/day_1.gz");
  ASSERT_OK(plain);
  EXPECT_EQ(plain->scheme, "file");
  EXPECT_EQ(plain->path, "data/day_1.gz");
  const auto remote = parse_url("hdfs://a:1,b:2/x y%20z");
  ASSERT_OK(remote);
  EXPECT_EQ(remote->scheme, "hdfs");
  EXPECT_EQ(remote->authority, "a:1,b:2");
  EXPECT_EQ(remote->path, "/x y%20z");
}

TEST(Url, TextGivesBackWhatWasParsed) {
  for (const char* text :
       {"a/b", "/a/b", "file:///a", "hdfs://h:1/x", "mem:///x", "odd:name", "a://"}) {
    const auto url = parse_url(text);
    if (url.ok()) {
      EXPECT_EQ(url->text(), text);
    }
  }
}

TEST(Url, WhatNamesNoFileIsRefused) {
  EXPECT_CODE(parse_url(""), kInvalidArgument);
  EXPECT_CODE(parse_url(std::string("a\0b", 3)), kInvalidArgument);
  EXPECT_CODE(parse_url("hdfs://host:1"), kInvalidArgument);
  EXPECT_CODE(parse_url("file://host/x"), kInvalidArgument);
  EXPECT_CODE(parse_url("file://x"), kInvalidArgument);
  EXPECT_OK(parse_url("file://localhost/x"));
}

TEST(Url, ComponentsLeaveOutEmptyOnesAndRefuseDots) {
  EXPECT_EQ(*path_components(*parse_url("mem://x//a///b/")), (std::vector<std::string>{"a", "b"}));
  EXPECT_CODE(path_components(*parse_url("mem://x/a/../b")), kInvalidArgument);
  EXPECT_CODE(path_components(*parse_url("mem://x/./b")), kInvalidArgument);
}

TEST(Url, ParentsAndBaseNames) {
  EXPECT_EQ(parent_path("/a/b"), "/a");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("/"), "/");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(parent_path("a/b/"), "a");
  EXPECT_EQ(base_name("/a/b/"), "b");
  EXPECT_EQ(base_name("b"), "b");
  EXPECT_EQ(join_url("/a/", "b"), "/a/b");
  EXPECT_EQ(join_url("", "b"), "b");
}

}  // namespace
}  // namespace starling
