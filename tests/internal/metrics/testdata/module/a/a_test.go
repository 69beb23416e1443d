package a

func NotCounted() {}
