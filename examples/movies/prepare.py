#!/usr/bin/env python3
"""Joins to each rating of MovieTweetings the genres of its movie and the movies that its user had rated 8 or more before.

usage: prepare.py FOLDER OUT

FOLDER holds ratings.dat (user::movie::rating::unixtime) and movies.dat (movie::title::genre|genre). Writes OUT/ratings.dat,
user::movie::rating::time::genre|genre::movie|movie with a header line, and prints the time from which the last fifth of the ratings is.
"""
import collections
import pathlib
import sys

HISTORY = 20  # movies, the newest


def main(folder, out):
    genres = {}
    for line in (folder / "movies.dat").read_text(encoding="utf-8").splitlines():
        movie, _, kinds = line.split("::")
        genres[movie] = kinds
    ratings = [line.split("::") for line in (folder / "ratings.dat").read_text(encoding="utf-8").splitlines()]
    liked, history = collections.defaultdict(list), {}
    for user, movie, rating, time in sorted(ratings, key=lambda one: int(one[3])):
        history[user, movie, time] = "|".join(liked[user][-HISTORY:])
        if int(rating) >= 8:
            liked[user].append(movie)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "ratings.dat", "w", encoding="utf-8") as file:
        file.write("user::movie::rating::time::genres::history\n")
        for user, movie, rating, time in ratings:
            file.write(f"{user}::{movie}::{rating}::{time}::{genres.get(movie, '')}::{history[user, movie, time]}\n")
    print(sorted(int(time) for _, _, _, time in ratings)[len(ratings) * 4 // 5])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
